"""Read the frames of messages: headers, an empty line, and a body of `Content-Length` bytes.

Invalid data is skipped up to the next length header, wherever in a line it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

MAX_MESSAGE = 256 << 20
"""The most bytes of a message."""
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
