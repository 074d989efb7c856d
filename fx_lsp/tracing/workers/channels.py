"""Frames over asyncio streams, and the tail of what a process prints."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from fx_lsp.errors import ProtocolError, TracerFailed, WorldStale
from fx_lsp.model import TraceReply, TraceRequest
from fx_lsp.wire import PREFIX, frame, frame_lengths, from_json, outcome_from_json, parse_header, readable, to_json

log = logging.getLogger(__name__)
BUFFER = 1 << 20
TAIL_BYTES = 64 << 10
_INLINE_BYTES = 64 << 10
MAX_REPLY_BYTES = 256 << 20
"""The bytes of the stages of one trace, all of which the server keeps; those of a large model have 30 MB."""
MAX_REPLY_FRAMES = 10_000
"""The messages of one trace, most of which are stages: a pass has one, and Inductor has a few hundred passes."""
EarlyReply: TypeAlias = Callable[[TraceReply], None]
"""Takes a reply that is not final."""


@dataclass
class Quota:
    """Hold how many messages, and bytes of them, may still come from a process."""

    messages: int = MAX_REPLY_FRAMES
    bytes: int = MAX_REPLY_BYTES

    def take(self, size: int) -> None:
        """Count a message. Raises ProtocolError if it is one too many, or too long."""
        if size > self.bytes or not self.messages:
            raise ProtocolError(f"a message of {size:,} bytes: {self.bytes:,} in {self.messages:,} messages are left")
        self.messages, self.bytes = self.messages - 1, self.bytes - size


async def receive(reader: asyncio.StreamReader, quota: Quota) -> tuple[dict[str, Any], bytes] | None:
    """The next frame, or None when the other side is gone (also in the middle of a frame). Raises ProtocolError, also
    for one that is beyond the `quota`.
    """
    try:
        head, body = frame_lengths(await reader.readexactly(PREFIX.size))
        quota.take(head + body)
        header = await reader.readexactly(head)
        rest = await reader.readexactly(body)
    except (asyncio.IncompleteReadError, OSError):
        return None
    if len(header) > _INLINE_BYTES:
        return await asyncio.to_thread(parse_header, header), rest
    return parse_header(header), rest


async def ask(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    request: TraceRequest,
    memory_bytes: int,
    early: EarlyReply | None = None,
) -> TraceReply | None:
    """Send a request and read the whole reply, or None when the other side went away before the end.

    `early` is given replies that are not final; where none follows, such a one is the reply.

    Raises TracerFailed when the job itself raised (our bug), ProtocolError on malformed frames, and WorldStale when the
    process has imported a package that has changed since.
    """
    try:
        writer.write(frame({"request": to_json(request), "memory_bytes": memory_bytes}))
        await writer.drain()
    except OSError:
        return None
    reply: dict[str, Any] = {}
    stages: dict[str, bytes] = {}
    whole: TraceReply | None = None
    quota = Quota()
    while (message := await receive(reader, quota)) is not None:
        header, body = message
        if "error" in header:
            trace = readable(str(header["error"])[-TAIL_BYTES:])
            if whole is not None:
                log.error("work after the answer for %s failed inside fx-lsp\n%s", request.name, trace)
                break
            raise TracerFailed(trace.strip().rpartition("\n")[2], trace)
        if "stale" in header:
            raise WorldStale("a package has changed since the tracer imported it")
        if "stage" in header:
            stages[readable(str(header["stage"]))] = body
        elif "done" in header:
            outcome = await asyncio.to_thread(outcome_from_json, reply.get("reply"))
            dependencies, packages = (from_json(tuple[str, ...], reply.get(n)) for n in ("dependencies", "packages"))
            whole = TraceReply(outcome, dict(stages), dependencies, packages)
            if header["done"]:
                return whole
            if early is not None:
                early(replace(whole, final=False))
        else:
            reply = header
    return whole


class OutputTail:
    """Drains a stream so that its writer never blocks, and keeps the last 64 KiB."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._tail = bytearray()
        self._task = asyncio.create_task(self._drain(reader))

    def text(self, size: int = TAIL_BYTES) -> str:
        """Return the last `size` bytes printed so far, decoded leniently, as people may see them."""
        return readable(bytes(self._tail[-size:]).decode("utf-8", "replace"))

    async def ended(self, seconds: float) -> None:
        """Wait until the stream ends, at most `seconds`."""
        await asyncio.wait({self._task}, timeout=seconds)

    def stop(self) -> None:
        """Read no more."""
        self._task.cancel()

    async def _drain(self, reader: asyncio.StreamReader) -> None:
        try:
            while data := await reader.read(BUFFER):
                self._tail += data
                del self._tail[:-TAIL_BYTES]
        except OSError:
            pass
