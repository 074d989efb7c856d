"""List the interpreters that may trace a folder, and let the user pick one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from fx_lsp.errors import WorkerStartError
from fx_lsp.messages.processes import INTERPRETER_PICKED, PICK_INTERPRETER
from fx_lsp.server import from_proto
from fx_lsp.server.client import Client
from fx_lsp.server.engines import Engines
from fx_lsp.server.session import Session

if TYPE_CHECKING:
    from fx_lsp.tracing.workers.find_python import PythonChoice

PROBES = 4
"""The most interpreters that are asked for their versions at a time."""


async def interpreters(session: Session, arguments: list[Any]) -> list[dict[str, Any]]:
    """Run `fxLsp.interpreters(uri?)`: list the interpreters for the folder of a document, or for the first workspace
    folder; the one in use comes first.

    Each has `path`, the `reason` why it is offered, `used`, `version` and `torch`, and the `problem` of one that does
    not answer. Without trust nothing runs: then `version`, `torch` and `problem` are null. An interpreter that the
    folder does not name is only offered if it has torch.
    """
    return await _offers(session, _folder(session, arguments[:1]))


async def pick_interpreter(session: Session, client: Client, engines: Engines, arguments: list[Any]) -> str | None:
    """Run `fxLsp.pickInterpreter(uri?, path?)`: trace with an interpreter until the server ends; without a path, ask
    for it. Returns the path, or None if the user picks none.
    """
    folder = _folder(session, arguments[:1])
    path = arguments[1] if len(arguments) > 1 else await _ask(session, client, folder)
    if not isinstance(path, str | None) or len(arguments) > 2:
        raise JsonRpcInvalidParams("the arguments must be the URI of a document, and the path of an interpreter")
    if path:
        await engines.pick_interpreter(path)
        client.tell(INTERPRETER_PICKED.format(path=path))
    return path or None


async def _ask(session: Session, client: Client, folder: str) -> str | None:
    paths = {_title(offer): str(offer["path"]) for offer in await _offers(session, folder)}
    actions = [types.MessageActionItem(title=title) for title in paths]
    text = PICK_INTERPRETER.format(folder=folder)
    question = types.ShowMessageRequestParams(types.MessageType.Info, text, actions)
    return paths.get(getattr(await client.ask(types.WINDOW_SHOW_MESSAGE_REQUEST, question), "title", ""))


def _title(offer: Mapping[str, Any]) -> str:
    """Return an offer in one line."""
    said = offer["problem"] or (offer["version"] and f"Python {offer['version']}, torch {offer['torch'] or 'missing'}")
    return " · ".join(filter(None, (offer["path"], offer["reason"], said)))


async def _offers(session: Session, folder: str) -> list[dict[str, Any]]:
    from fx_lsp.tracing.workers.find_python import offered

    roots = session.roots_of(str(Path(folder) / "file.py"))
    used = session.interpreter(folder)
    every = [used, *(one for one in await asyncio.to_thread(offered, roots, os.environ) if not _is_same(one, used))]
    limit = asyncio.Semaphore(PROBES)
    trusted = bool(session.trust_of_folder(folder))
    offers = await asyncio.gather(*(_offer(one, one == used, trusted, limit) for one in every))
    return [offer for offer, one in zip(offers, every, strict=True) if offer["torch"] or not one.reason.is_other]


async def _offer(candidate: PythonChoice, used: bool, trusted: bool, limit: asyncio.Semaphore) -> dict[str, Any]:
    from fx_lsp.tracing.workers.find_python import probe, why

    offer = {"path": candidate.path, "reason": why(candidate), "used": used}
    if not trusted:
        return {**offer, "version": None, "torch": None, "problem": None}
    try:
        async with limit:
            answer = await probe(candidate.path)
    except WorkerStartError as error:
        return {**offer, "version": None, "torch": None, "problem": str(error)}
    return {**offer, "version": answer.version, "torch": answer.torch, "problem": None}


def _is_same(one: PythonChoice, other: PythonChoice) -> bool:
    """Return True if two interpreters belong to the same environment."""
    return os.path.realpath(Path(one.path).parent) == os.path.realpath(Path(other.path).parent)


def _folder(session: Session, arguments: list[Any]) -> str:
    """Return the folder of a document, or the first workspace folder. Raises JsonRpcInvalidParams."""
    if arguments and arguments[0] is not None:
        file = from_proto.file_of_uri(arguments[0], session.roots()) if isinstance(arguments[0], str) else None
        if file is not None:
            return session.folder_of(file)
    elif session.roots():
        return session.roots()[0]
    raise JsonRpcInvalidParams("the first argument must be the URI of a document")
