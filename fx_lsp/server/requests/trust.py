"""Ask the user whether the code of a folder may run, and handle the commands about it.

Nothing of a folder runs before the answer: no code, no interpreter, not even to ask it for its version.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams

from fx_lsp.messages.processes import (
    ALREADY_TRUSTED,
    CONFINED,
    HOW_TO_TRUST,
    NO_LONGER_TRUSTED,
    TRUST_IS_SET,
    TRUST_OF_WORKSPACE,
    TRUST_QUESTION,
    UNCONFINED,
    UNSTORED_TRUST,
)
from fx_lsp.sandbox.trial import gaps
from fx_lsp.server import from_proto
from fx_lsp.server.client import Client
from fx_lsp.server.engines import Engines
from fx_lsp.server.session import Session
from fx_lsp.server.settings import Settings, without_more_trust
from fx_lsp.server.tasks import Tasks

if TYPE_CHECKING:
    from fx_lsp.tracing.trust import FolderTrust

TRUST, NOT_NOW, NEVER = "Trust", "Not now", "Never"


def ask_if_needed(session: Session, client: Client, tasks: Tasks, engines: Engines, file: str) -> None:
    """Ask once about the folder of a file that has something to trace, unless the user has answered before."""
    folder = session.folder_of(file)
    if session.closed or session.engine is None or folder in session.asked_about:
        return
    state = session.engine.state(file)
    if state is not None and state.targets and session.trust_of_folder(folder) is None:
        session.asked_about.add(folder)
        tasks.spawn("the question about trust", _ask(session, client, engines, folder))


async def trust(session: Session, client: Client, tasks: Tasks, engines: Engines, arguments: list[Any]) -> None:
    """Run `fxLsp.trust(uri?)`: ask about the folder of a document, or about every workspace folder."""
    for folder in _folders(session, arguments):
        session.asked_about.add(folder)
        if reason := _decided_elsewhere(session):
            client.tell(reason)
        elif session.trust_of_folder(folder):
            client.tell(ALREADY_TRUSTED.format(folder=folder))
        else:
            tasks.spawn("the question about trust", _ask(session, client, engines, folder, is_command=True))


async def revoke_trust(session: Session, client: Client, engines: Engines, arguments: list[Any]) -> None:
    """Run `fxLsp.revokeTrust(uri?)`: trust the folder of a document no longer, or no workspace folder; end all tracing
    processes.
    """
    from fx_lsp.tracing.trust import revoke_folder_trust

    for folder in _folders(session, arguments):
        session.asked_about.add(folder)
        if reason := _decided_elsewhere(session):
            client.tell(reason)
            continue
        session.unstored_trust.pop(folder, None)
        try:
            revoke_folder_trust(folder)
        except OSError as error:
            session.unstored_trust[folder] = "never"
            client.tell(UNSTORED_TRUST.format(folder=folder, error=error), types.MessageType.Warning)
        client.tell(NO_LONGER_TRUSTED.format(folder=folder))
        await engines.trust_changed()


def later_settings(session: Session, client: Client, settings: Settings) -> Settings:
    """Return settings that came after `initialize`, without trust that they would give."""
    allowed = without_more_trust(settings, session.first_settings)
    if allowed != settings:
        client.tell(TRUST_OF_WORKSPACE, types.MessageType.Warning)
    return allowed


async def _ask(session: Session, client: Client, engines: Engines, folder: str, is_command: bool = False) -> None:
    """Ask about a folder, and store the answer. A client that cannot ask trusts a folder by the command alone."""
    actions = [types.MessageActionItem(title=title) for title in (TRUST, NOT_NOW, NEVER)]
    text = _question(session, folder, await asyncio.to_thread(gaps))
    question = types.ShowMessageRequestParams(types.MessageType.Info, text, actions)
    try:
        answer = await client.request(types.WINDOW_SHOW_MESSAGE_REQUEST, question)
        title = getattr(answer, "title", "")
    except JsonRpcException:
        title = TRUST if is_command else ""
    if title == TRUST:
        await _decide(session, client, engines, folder, "trusted")
    elif title == NEVER:
        await _decide(session, client, engines, folder, "never")
    elif title != NOT_NOW:
        client.tell(HOW_TO_TRUST.format(folder=folder, quoted=shlex.quote(folder)))


def _question(session: Session, folder: str, unconfined: Sequence[str]) -> str:
    python = session.interpreter(folder).path
    limits = (" ".join(unconfined) or CONFINED) if session.settings.limits_sandbox else UNCONFINED
    shown = [_printable(path) for path in (folder, python)]
    return TRUST_QUESTION.format(folder=shown[0], python=shown[1], protection=limits)


def _printable(path: str) -> str:
    """Return a path that cannot add lines to the question."""
    return "".join(character if character.isprintable() else "?" for character in path)


async def _decide(session: Session, client: Client, engines: Engines, folder: str, answer: FolderTrust) -> None:
    from fx_lsp.tracing.trust import set_folder_trust

    session.unstored_trust.pop(folder, None)
    try:
        set_folder_trust(folder, answer)
    except OSError as error:
        client.tell(UNSTORED_TRUST.format(folder=folder, error=error), types.MessageType.Warning)
    if session.trust_of_folder(folder) != (answer == "trusted"):
        session.unstored_trust[folder] = answer
    await engines.trust_changed()


def _decided_elsewhere(session: Session) -> str:
    """Return why the user is not asked, or ""."""
    if session.settings.trusted is not None:
        return TRUST_IS_SET["client"]
    return TRUST_IS_SET.get(session.settings.trust, "")


def _folders(session: Session, arguments: list[Any]) -> Iterator[str]:
    """Yield the folder of a document, or every workspace folder without one. Raises JsonRpcInvalidParams."""
    if not arguments:
        yield from session.roots()
        return
    file = from_proto.file_of_uri(arguments[0], session.roots()) if isinstance(arguments[0], str) else None
    if file is None or len(arguments) > 1:
        raise JsonRpcInvalidParams("the argument must be the URI of a document")
    yield session.folder_of(file)
