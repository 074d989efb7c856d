"""The frames that messages arrive in: headers, an empty line, and as many bytes as the header `Content-Length` says.

What is no frame is skipped up to the next header of a length, wherever in a line that stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

MAX_MESSAGE = 256 << 20
"""How many bytes a message may have."""
_MAX_LINE = 64 << 10
_MAX_DIGITS = 18
_LENGTH = re.compile(rb"content-length:[ \t]*0*(\d+)[ \t]*\r?\n", re.IGNORECASE)


@dataclass(frozen=True)
class BrokenFrame:
    """Say what is wrong with what arrived. With `is_end` nothing after it can be told apart."""

    sentence: str
    is_end: bool = False


def read_frames(stream: IO[bytes]) -> Iterator[bytes | BrokenFrame]:
    """Yield the body of each message, until the stream ends, or what is not of a message has no end that is known."""
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
