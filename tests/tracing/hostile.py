"""A module of a project that lies: once imported, it sends messages of its own over every channel of its process.

`seed.py` beside it says by which seed, how many, and in which process of a trace: the world, a program or the tracer.
"""

from __future__ import annotations

import gc
import json
import os
import random
import socket
import struct
import sys
from contextlib import suppress
from typing import Any

ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**31, 2**70, 1e308, float("nan"), "", "\0", "\ud800", "a" * 3000, "/etc/passwd", "../x",
    [], {}, [[]], [None], {"": None}, [1, "a"], list(range(500)), {str(n): [n] for n in range(500)}, os.getppid(),
)  # fmt: skip
SPAN = {"file": "/etc/passwd", "line": 2**40, "col": -1, "end_line": 0, "end_col": 0}
TRACE = {
    "target": "another", "inputs": [{"name": "x", "spec": "f32[2]", "source": "comment"}], "outputs": ["f32[2]"],
    "stages": [{"name": "inference", "ops": 1, "nodes": 2**40}], "saved": [], "seconds": 0.0, "torch": "2",
    "values": [{"span": SPAN, "name": "x", "spec": "f32[2]"}], "remarks": [{"message": "m", "span": SPAN}],
}  # fmt: skip
FAILURE = {"kind": "error", "message": "m", "span": SPAN, "severity": "error", "output": "\x1b[2J"}
OF_TRACER: tuple[dict[str, Any], ...] = (
    {"reply": {"trace": TRACE}, "dependencies": ["/etc/passwd", "\0", ""], "packages": ["antigravity", "a" * 300]},
    {"reply": {"failure": FAILURE}, "dependencies": [], "packages": []},
    {"stage": "inference"}, {"stage": "../../x"}, {"done": True}, {"done": False}, {"done": False},
)  # fmt: skip
LAST: tuple[dict[str, Any], ...] = ({"error": "a bug"}, {"stale": True})
"""Messages after which nothing is heard."""
OF_WORLD: tuple[dict[str, Any], ...] = (
    {"forked": 1, "pid": os.getpid()}, {"forked": 1, "pid": 1}, {"unforked": 1, "message": "m", "stale": False},
    {"exited": os.getppid(), "status": -9}, {"exited": 0, "status": 0}, {"read": {"/etc/passwd": [1, 2], "\0": None}},
    {"parked": "f", "file": "model.py", "pid": os.getppid(), "read": {}}, {"again": "train.py"}, {"refused": 1},
    {"ended": {"model.py": ["f"]}, "calls": {"model.py": {"f": [["x=f32[3]", 3]]}}}, {"refused": 2, "stale": True},
)  # fmt: skip


def changed(rng: random.Random, value: Any) -> Any:
    """Return data of which one part is something else, or is missing."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice([*value])
        rest = {name: part for name, part in value.items() if name != key}
        return rest if rng.random() < 0.1 else {**rest, key: changed(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.8:
        number = rng.randrange(len(value))
        return [*value[:number], changed(rng, value[number]), *value[number + 1 :]]
    return rng.choice(ODD)


def message(rng: random.Random, known: tuple[dict[str, Any], ...], stage: bytes = b"") -> bytes:
    """Return a message: one that is `known`, changed or not; rarely bytes that are none."""
    header: Any = rng.choice(known)
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        header = changed(rng, header)
    if rng.random() < 0.7 and isinstance(header, dict):
        header.setdefault("descriptors", rng.choice((0, 0, 1, 9, -1, "x")))
    head = json.dumps(header).encode()
    body = bytearray(stage)
    if body and rng.random() < 0.7:
        body[rng.randrange(len(body))] = rng.randrange(256)
    lengths = len(head), len(body)
    match rng.randrange(150):
        case 0:
            head = b"[" * len(head)
        case 1:
            head = b"\xff" + head[1:]
        case 2:
            head = b'{"a":[' + b"[]," * 2_000_000 + b"[]]}"
            lengths = len(head), len(body)
        case 3:
            lengths = rng.choice(((0, 0), (2**32 - 1, 2**32 - 1), (2**29, 0), (len(head), 2**27), (len(head) - 1, 1)))
        case 4:
            head = rng.randbytes(len(head))
        case 5:
            return rng.randbytes(rng.randrange(30))
    return struct.pack(">II", *lengths) + head + body


def descriptors(rng: random.Random) -> list[int]:
    """Return descriptors that no one expects: none, too many, files, pipes, an end that is closed, the terminal's."""
    ours, theirs = socket.socketpair()
    ours.detach()
    theirs.close()
    kinds = [], [0], [ours.fileno()], [os.open(os.devnull, os.O_RDWR)], [*os.pipe()], [os.open(os.devnull, 0)] * 20
    ends = [end.detach() for end in socket.socketpair()]
    return rng.choice([[fd for fd in kind if fd >= 0] for kind in (*kinds, ends, ends[:1])])


def send(rng: random.Random, end: socket.socket, data: bytes) -> None:
    """Send a message, with descriptors or without, and rarely close a part of the channel."""
    end.settimeout(2)
    given = descriptors(rng) if rng.random() < 0.3 else []
    socket.send_fds(end, [data], given) if given and data else end.sendall(data)
    if rng.random() < 0.01:
        end.shutdown(rng.choice((socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR)))


def play(number: int = 0) -> int:
    """Send the messages if this is the process that is to lie; return 1."""
    import seed

    module = sys.modules[__name__]
    frame, names = sys._getframe(), set[str]()
    while frame is not None:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    role = "tracer" if "become_child" in names else "program" if "run_program" in names else "world"
    if role != seed.ROLE or getattr(module, "played", False):
        return 1
    module.played = True  # type: ignore[attr-defined]
    rng = random.Random(f"{seed.SEED} {role}")
    ends = [o for o in gc.get_objects() if type(o) is socket.socket and o.fileno() >= 0 and o.family == socket.AF_UNIX]
    known = OF_TRACER + (LAST if rng.random() < 0.2 else ()) if role == "tracer" else OF_WORLD
    for _ in range(seed.COUNT):
        with suppress(OSError, ValueError):
            send(rng, rng.choice(ends), b"c" if rng.random() < 0.05 else message(rng, known))
    if rng.random() < 0.2:
        os._exit(rng.randrange(3))
    return 1


if __name__ == "hostile":
    with suppress(ImportError):
        play()
