"""Processes with code of a workspace lie: what they send costs only themselves."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import hostile
import pytest
from waiting import until
from warm import warm_python

from fx_lsp.errors import ProtocolError, TracerFailed, WorkerDied, WorldStale
from fx_lsp.model import Node, Outcome, Span, Stage, Trace, TraceReply, TraceRequest
from fx_lsp.tracer.process.child import children_of
from fx_lsp.tracing.answers.disk import Cache
from fx_lsp.tracing.answers.store import Answers
from fx_lsp.tracing.engine import Engine, EngineSettings
from fx_lsp.tracing.workers.channels import BUFFER, OutputTail, ask
from fx_lsp.tracing.workers.fork_server import ForkServer, ProcessChannels
from fx_lsp.tracing.workers.launch import Launch, Limits
from fx_lsp.tracing.workers.pool import Workers
from fx_lsp.wire import decode_stage, encode_stage

SPAN = Span("/m.py", 1, 0, 1, 4)
STAGE = encode_stage(
    Stage(
        "inference",
        (
            Node("x", "placeholder", "x", users=("y",), spec="f32[2]", spans=(SPAN,)),
            Node("y", "call_function", "aten.relu.default", ("x",), ("x",), (), "f32[2]", (SPAN, SPAN)),
        ),
        "y = relu(x)\n",
        (1, 2),
    )
)
REQUEST = TraceRequest("/m.py", "f", "function", "", "", "m", "", ())
few_or_many = pytest.mark.parametrize("count", [300, pytest.param(13_000, marks=pytest.mark.release)])


async def pair() -> tuple[socket.socket, asyncio.StreamReader, asyncio.StreamWriter]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    return theirs, *await asyncio.open_connection(sock=ours, limit=BUFFER)


async def send(end: socket.socket, messages: list[bytes], heard: asyncio.Task[Any]) -> None:
    """Send messages as long as they are heard, and close the channel."""
    sending = asyncio.ensure_future(asyncio.get_running_loop().sock_sendall(end, b"".join(messages)))
    await asyncio.wait({sending, heard}, return_when=asyncio.FIRST_COMPLETED, timeout=60)
    sending.cancel()
    with suppress(OSError, asyncio.CancelledError):
        await sending
    end.close()


@few_or_many
async def test_a_tracer_that_lies_gives_an_answer_or_an_error(count: int, tmp_path: Path) -> None:
    answers, sent, given = Answers(Cache(str(tmp_path / "cache.sqlite3"))), 0, 0
    while sent < count:
        rng = random.Random(seed := f"tracer {sent}")
        end, reader, writer = await pair()
        early: list[TraceReply] = []
        asked = asyncio.create_task(ask(reader, writer, REQUEST, 1 << 30, early.append))
        known = (*hostile.OF_TRACER, *(hostile.LAST if rng.random() < 0.1 else ()))
        try:
            messages = [hostile.message(rng, known, rng.choice((STAGE, b""))) for _ in range(rng.randrange(1, 12))]
            sent += len(messages)
            await send(end, messages, asked)
            reply = await asyncio.wait_for(asked, 60)
        except (ProtocolError, TracerFailed, WorldStale):
            reply = None
        except Exception as error:
            raise AssertionError(f"seed {seed!r}") from error
        finally:
            end.close()
            writer.close()
        for one in [*early, *([reply] if reply is not None else [])]:
            given += 1
            answers.keep(seed, one.outcome, one.stages)  # type: ignore[arg-type]
            for name, data in one.stages.items():
                stage = answers.stage_now(seed, name)
                with suppress(ProtocolError):
                    assert stage in (None, decode_stage(data)), seed
            await answers.store(seed, one, (), ())
    assert given > count / 100
    answers.close()


class _Process:
    """A process that forks, as far as its server sees."""

    def __init__(self) -> None:
        self.pid, self.exited = os.getpid(), asyncio.get_running_loop().create_future()
        self.exited.set_result(-9)

    def kill(self) -> None: ...

    def resume(self) -> bool:
        return False


class _World(ForkServer):
    def has_started(self, pid: int) -> bool:
        return False


@few_or_many
async def test_a_world_that_lies_names_no_process_and_ends(count: int) -> None:
    sent = 0
    while sent < count:
        rng = random.Random(seed := f"world {sent}")
        end, reader, writer = await pair()
        output = asyncio.StreamReader()
        output.feed_eof()
        process = _Process()
        control = writer.get_extra_info("socket").dup()
        world = _World(process, ProcessChannels(control, reader, writer, OutputTail(output)), "a world")
        forks = [asyncio.create_task(world.fork()) for _ in range(3)]
        await asyncio.sleep(0)
        messages = [hostile.message(rng, hostile.OF_WORLD) for _ in range(rng.randrange(1, 12))]
        sent += len(messages)
        await send(end, messages, world.listener)
        for fork in await asyncio.wait_for(asyncio.gather(*forks, return_exceptions=True), 60):
            assert isinstance(fork, (WorkerDied, WorldStale)), f"seed {seed!r}: {fork!r}"
        await asyncio.wait_for(until(lambda listener=world.listener: listener.done()), 60)
        assert world.listener.exception() is None, seed
        assert await asyncio.to_thread(world.is_fresh) is False
        control.close()
        writer.close()


MODEL = """
import torch
import hostile


def f(x: torch.Tensor):
    return torch.relu(x) * hostile.play(NUMBER)
"""
PROGRAM = """
import torch
import hostile
from model import f

if __name__ == "__main__":
    hostile.play()
    f(torch.ones(3))
"""
HONEST = "import torch\n\ndef g(x: torch.Tensor):\n    # fx: x=f32[4]\n    return torch.relu(x) + {n}\n"
ROLES = ("world", "program", "tracer")


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    for name in ("liar", "honest"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pyproject.toml").touch()
    shutil.copy(hostile.__file__, tmp_path / "liar" / "hostile.py")
    (tmp_path / "liar" / "train.py").write_text(PROGRAM)
    settings = EngineSettings(interpreter=warm_python(), workers=1, limits=Limits(seconds=20), trace_on_open=False)
    it = Engine(settings, lambda file: None, lambda status: None)
    yield it
    await it.shutdown()


async def traced(engine: Engine, file: Path, text: str, name: str) -> Outcome:
    file.write_text(text)
    engine.open(str(file), text, (str(file.parent),))
    return await asyncio.wait_for(engine.outcome(str(file), name, final=True), 300)


async def graph(engine: Engine, folder: Path, number: int) -> list[tuple[object, ...]]:
    """Trace the target of the other project, which adds a number; return the operations of its graphs."""
    file = folder / "honest" / "other.py"
    outcome = await traced(engine, file, HONEST.format(n=number), "g")
    assert isinstance(outcome, Trace), outcome
    nodes: list[Node] = []
    for info in outcome.stages:
        stage = await engine.stage(str(file), "g", info.name)
        assert isinstance(stage, Stage), stage
        nodes += stage.nodes
    assert any(str(number) in node.args for node in nodes)
    return [(node.name, node.op, node.target, node.spec, node.users) for node in nodes]


@pytest.mark.torch
@pytest.mark.parametrize("rounds", [6, pytest.param(40, marks=pytest.mark.release)])
async def test_a_project_that_lies_costs_only_itself(
    engine: Engine, tmp_path: Path, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bugs: list[object] = []
    monkeypatch.setattr(logging.Logger, "exception", lambda self, *said, **options: bugs.append(said))
    before = await graph(engine, tmp_path, 2)
    tracers: Any = engine._interpreters.all[0]._tracers
    zygote = tracers.pid
    for number in range(rounds):
        role = ROLES[number % len(ROLES)]
        (tmp_path / "liar" / "seed.py").write_text(f"SEED, COUNT, ROLE = {number}, 100, {role!r}\n")
        file = tmp_path / "liar" / "model.py"
        outcome = await traced(engine, file, MODEL.replace("NUMBER", str(number)), "f")
        assert role == "tracer" or isinstance(outcome, Trace), (number, outcome)
        if number % 10 == 0:
            assert await graph(engine, tmp_path, number + 3) == before, number
    assert await graph(engine, tmp_path, 1000) == before
    assert tracers.pid == zygote and not tracers._deaths
    assert not bugs


CHANNELS = """
import os, socket, sys, time
from fx_lsp.tracer.process import child, compilers
from fx_lsp.wire import frame
import gc
asking = compilers.requests.end
(channel,) = [each for each in gc.get_objects() if type(each) is child.Channel]
"""
ATTACKS = {
    "shuts the socket for compilers": "asking.shutdown(socket.SHUT_RDWR)",
    "sends bytes to that socket": "asking.sendall(b'c' * 100_000)",
    "asks for many compilers": "ends = [socket.socketpair() for _ in range(300)]\n"
    "for ours, theirs in ends: socket.send_fds(asking, [b'c'], [theirs.fileno()])\ntime.sleep(1)",
    "sends what is no socket": "socket.send_fds(asking, [b'c'], [os.open(os.devnull, 0)] * 9)",
    "has grown old without end": "channel.send({'stale': True})\nos._exit(0)",
    "names modules of the workspace": "channel.send({'reply': {'failure': {'kind': 'error', 'message': 'm'}}, "
    "'dependencies': [], 'packages': ['slices', 'x' * 1_000_000, 'a b', '..']})\nchannel.send({'done': True})",
    "sends many values": "many = b'{\"a\":[' + b'[],' * 20_000_000 + b'0]}'\n"
    "channel.write(len(many).to_bytes(4, 'big') + bytes(4) + many)",
    "sends answers without end": "reply = {'reply': {'failure': {'kind': 'error', 'message': 'm' * 1000}}, "
    "'dependencies': [], 'packages': []}\nwhile True:\n    channel.send(reply)\n    channel.send({'done': False})",
    "says of itself a long error": "channel.send({'error': 'x' * 100_000_000})",
    "closes every descriptor": "os.closerange(3, 1000)",
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
async def test_a_tracer_that_attacks_costs_only_itself(attack: str) -> None:
    here = str(Path(__file__).parent)
    launch = Launch(sys.executable, job="jobs:run", paths=(here,), warm=False, limits=Limits(60, 1 << 30))
    workers = Workers(launch, "fork")
    look = "import sys\nnotes = ['slices' in sys.modules, compilers.requests.end.send(b'') == 0]"
    honest = replace(REQUEST, source=CHANNELS + look)
    before = await workers.run(honest)
    zygote = workers.pid
    assert zygote is not None
    with suppress(WorkerDied, TracerFailed):
        reply = await workers.run(replace(REQUEST, source=CHANNELS + attack))
        workers.preload(reply.packages)
    assert len(children_of(zygote)) < 30
    assert (await workers.run(honest)).outcome == before.outcome
    await until(lambda: not children_of(zygote), 60)
    assert workers.pid == zygote and not workers._deaths
    await workers.close()
