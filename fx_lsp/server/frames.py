"""Read and write the frames of messages: headers, an empty line, and a body of `Content-Length` bytes.

Invalid data is skipped up to the next length header, wherever in a line it is.
"""

from __future__ import annotations

import json
import queue
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, cast

MAX_MESSAGE = 256 << 20
"""The most bytes of a message."""
PART_ITEMS = 200
"""The most items of a list that are encoded at once: meanwhile no other thread runs."""
PART_CHARACTERS = 1 << 20
"""The most characters of a text that are encoded at once."""
_MAX_LINE = 64 << 10
_MAX_DIGITS = 18
_LENGTH = re.compile(rb"content-length:[ \t]*0*(\d+)[ \t]*\r?\n", re.IGNORECASE)


@dataclass(frozen=True)
class BrokenFrame:
    """Describe invalid input. After one with `is_end`, nothing more can be parsed."""

    sentence: str
    is_end: bool = False


def read_frames(stream: IO[bytes]) -> Iterator[bytes | BrokenFrame]:
    """Yield the body of each message until the stream ends, or a `BrokenFrame` for invalid data."""
    digits: bytes | None = None
    has_headers = False
    while line := stream.readline(_MAX_LINE):
        if header := _LENGTH.search(line):
            digits = header[1]
        elif line.strip():
            has_headers = True
        elif digits is None:
            if has_headers:
                yield BrokenFrame("a message whose header has no Content-Length was skipped")
            has_headers = False
        elif len(digits) > _MAX_DIGITS or int(digits) > MAX_MESSAGE:
            is_number = len(digits) <= _MAX_DIGITS
            length = f"of {int(digits):,} bytes" if is_number else f"whose length has {len(digits)} digits"
            sentence = f"a message {length} exceeds the limit of {MAX_MESSAGE:,} bytes: the connection is closed"
            yield BrokenFrame(sentence, is_end=True)
            return
        else:
            body = stream.read(int(digits))
            if len(body) < int(digits):
                return
            yield body
            digits, has_headers = None, False


class Outbox:
    """Encode and write messages in a thread, in order: a large message, or a client that does not read, delays no other
    work.

    `default` converts objects to JSON data; `failed` gets the exception of a message, `lost` is called once the client
    is gone. Both are called in the thread.
    """

    def __init__(
        self,
        stream: IO[bytes],
        default: Callable[[Any], Any],
        failed: Callable[[Exception], None],
        lost: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._default = default
        self._failed = failed
        self._lost = lost
        self._messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._ended = threading.Event()
        # Not a pool thread: the interpreter would wait for it, and so for a client that does not read, at exit.
        threading.Thread(target=self._run, name="writer", daemon=True).start()

    def put(self, message: object) -> None:
        """Send a message. Returns at once."""
        self._messages.put(message)

    def end(self, seconds: float) -> None:
        """Wait until everything is written, at most some seconds."""
        self._messages.put(None)
        self._ended.wait(seconds)

    def _run(self) -> None:
        try:
            while (message := self._messages.get()) is not None:
                self._write(message)
        except (OSError, ValueError):
            self._lost()
        finally:
            self._ended.set()

    def _write(self, message: object) -> None:
        try:
            parts = [part.encode() for part in json_parts(message, self._default)]
        except Exception as error:
            self._failed(error)
            return
        for part in (f"Content-Length: {sum(map(len, parts))}\r\n\r\n".encode(), *parts):
            self._stream.write(part)
        self._stream.flush()


def json_parts(value: object, default: Callable[[Any], Any]) -> Iterator[str]:
    """Yield a value as JSON, in parts that are encoded quickly; `default` is as in `json.dumps`."""
    if isinstance(value, str) and len(value) > PART_CHARACTERS:
        yield '"'
        for start in range(0, len(value), PART_CHARACTERS):
            yield json.dumps(value[start : start + PART_CHARACTERS])[1:-1]
        yield '"'
    elif isinstance(value, Mapping):
        separator = "{"
        for key, item in cast("Mapping[str, Any]", value).items():
            yield f"{separator}{json.dumps(key)}: "
            yield from json_parts(item, default)
            separator = ", "
        yield "}" if separator != "{" else "{}"
    elif isinstance(value, (list, tuple)) and len(cast("Sequence[Any]", value)) > PART_ITEMS:
        items = cast("Sequence[Any]", value)
        separator = "["
        for start in range(0, len(items), PART_ITEMS):
            yield separator + json.dumps(items[start : start + PART_ITEMS], default=default)[1:-1]
            separator = ", "
        yield "]"
    elif isinstance(value, (list, tuple)):
        separator = "["
        for item in cast("Sequence[Any]", value):
            yield separator
            yield from json_parts(item, default)
            separator = ", "
        yield "]" if separator != "[" else "[]"
    elif value is None or isinstance(value, (str, int, float)):
        yield json.dumps(value)
    else:
        yield from json_parts(default(value), default)
