"""A real sshd on the loopback interface, with its own keys and configuration, and a proxy that cuts or freezes it."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


@dataclass
class Sshd:
    """A server that runs; `config` is the client's configuration, in which it is called `box`."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]

    def config(self, port: int | None = None, known: str | None = None, name: str = "box") -> str:
        """A file for `ssh -F`, of a client that knows the host keys in `known`, or the right one."""
        hosts = self.folder / f"known-{name}"
        if known is None:
            known = f"{name} {(self.folder / 'host.pub').read_text()}"
        hosts.write_text(known)
        file = self.folder / f"config-{name}"
        file.write_text(
            f"Host {name}\n  HostName 127.0.0.1\n  Port {port or self.port}\n  User {getpass.getuser()}\n"
            f"  IdentityFile {self.folder / 'user'}\n  IdentitiesOnly yes\n  IdentityAgent none\n"
            f"  UserKnownHostsFile {hosts}\n  GlobalKnownHostsFile /dev/null\n  HostKeyAlias {name}\n"
        )
        return str(file)


def start_sshd(folder: Path) -> Sshd:
    """A server that lets in whoever has the key `user` of the folder."""
    assert SSHD is not None
    for name in ("host", "user", "stranger"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    shutil.copy(folder / "user.pub", folder / "authorized")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    port = free_port()
    config = folder / "sshd_config"
    config.write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {folder / 'host'}\nAuthorizedKeysFile {folder / 'authorized'}\n"
        f"PidFile {folder / 'pid'}\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
        "KbdInteractiveAuthentication no\nPermitRootLogin yes\nLogLevel VERBOSE\n"
    )
    log = (folder / "log").open("wb")
    process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(config)], stdout=log, stderr=log)
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return Sshd(folder, port, process)
        assert process.poll() is None, (folder / "log").read_text()
        time.sleep(0.05)
    raise AssertionError((folder / "log").read_text())


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@dataclass
class Proxy:
    """Forwards a port of the loopback interface to another, until it is told otherwise."""

    to: int
    port: int = 0
    flowing: threading.Event = field(default_factory=threading.Event)
    _sockets: list[socket.socket] = field(default_factory=list[socket.socket])

    def __post_init__(self) -> None:
        self.flowing.set()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def freeze(self) -> None:
        """Take everything and pass nothing on."""
        self.flowing.clear()

    def cut(self) -> None:
        """Close every connection, and take no more."""
        for one in [self._server, *self._sockets]:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self.flowing.set()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                return
            self._sockets += [near, far]
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                self.flowing.wait()
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass
