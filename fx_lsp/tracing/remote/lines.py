"""Send bytes through a channel that only passes whole lines, such as a scheduler's launcher: as lines of base64."""

from __future__ import annotations

import binascii
from typing import IO

MARK = b"fx-lsp:"

_PROGRAM = f"""
import base64, os, sys, threading

def pass_on(source, sink):
    try:
        while True:
            data = os.read(source, 1 << 15)
            if not data:
                break
            line = {MARK!r} + base64.b64encode(data) + b"\\n"
            while line:
                line = line[os.write(sink, line):]
    finally:
        os.close(source)

read, write = os.pipe()
passing = threading.Thread(target=pass_on, args=(read, os.dup(1)))
passing.daemon = True
passing.start()
os.dup2(write, 1)
os.close(write)
exec(eval(sys.stdin.readline()))
"""
FIRST = (repr(_PROGRAM) + "\n").encode()
"""The first input of a Python that evaluates and runs the lines of its standard input."""


class Lines:
    """Decode the standard output of that Python. Output of other programs stays unchanged."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._held = b""

    def read(self, most: int) -> bytes:
        """Return between one and `most` bytes; empty at the end."""
        if not self._held:
            line = self._file.readline()
            self._held = _decoded(line) if line.startswith(MARK) else line
        taken_bytes, self._held = self._held[:most], self._held[most:]
        return taken_bytes

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _decoded(line: bytes) -> bytes:
    """Return the bytes of an encoded line; empty if it was cut off."""
    try:
        return binascii.a2b_base64(line[len(MARK) :]) if line.endswith(b"\n") else b""
    except binascii.Error:
        return b""
