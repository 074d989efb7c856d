"""Unix sockets between processes that fork: frames of `fx_lsp.wire`, and the descriptors that come with them."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from fx_lsp.errors import ProtocolError
from fx_lsp.wire import frame, read_frame


class Link:
    """One end of a socket. A header says under `descriptors` how many come with it."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._descriptors: list[int] = []

    def fileno(self) -> int:
        """Return its descriptor, for `select`."""
        return self._socket.fileno()

    def send(self, header: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send a frame, and descriptors with it. Raises OSError where the other end is gone."""
        data = frame({**header, "descriptors": len(descriptors)})
        if descriptors:
            socket.send_fds(self._socket, [data], list(descriptors))
        else:
            self._socket.sendall(data)

    def receive(self) -> tuple[dict[str, Any], list[int]] | None:
        """Return the next frame and its descriptors; None where the other end is gone."""
        with suppress(OSError, ProtocolError):
            message = read_frame(self._read)
            if message is not None:
                count = message[0]["descriptors"]
                descriptors, self._descriptors = self._descriptors[:count], self._descriptors[count:]
                return message[0], descriptors
        return None

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def _read(self, size: int) -> bytes:
        data, descriptors, _, _ = socket.recv_fds(self._socket, size, 8)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        self._descriptors += descriptors
        return data
