"""Shared by all tests: small source files with a cursor, and a warm process that traces."""

from __future__ import annotations

import gc
import logging
import os
import pickle
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeVar

import pytest

# As in a worker, before anything imports torch. A fork of a process whose OpenMP threads have run would wait for them.
os.environ.update(PYTORCH_JIT="0", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
os.environ["TRITON_INTERPRET"] = "1"  # generated kernels run on the CPU; Triton asks when it is imported

from fx_lsp import wire
from fx_lsp.features.source.findings import TOLD, told_outcome
from fx_lsp.model import Failure, InputSpec, Stage, Trace, TraceReply, TraceRequest, WrittenInputs

T = TypeVar("T")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests that share the fixture of a module in one process, so that it is set up once."""
    for item in items:
        definitions = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
        shares = any(definition.scope == "module" for several in definitions.values() for definition in several)
        if shares and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Append the seconds of a test's phase to the file that `FX_LSP_SECONDS` names: `python scripts/seconds.py`."""
    path = os.environ.get("FX_LSP_SECONDS")
    if path and "PYTEST_XDIST_WORKER" not in os.environ:
        with open(path, "a", encoding="utf-8") as rows:
            rows.write(f"{report.nodeid}\t{report.when}\t{report.duration:.2f}\n")


class Traced:
    """A reply with its stages decoded, and the source for looking spans up; `outcome` tells what it does by default."""

    def __init__(self, reply: TraceReply, source: str) -> None:
        self.reply = reply
        self.outcome = told_outcome(reply.outcome, TOLD, source)
        self.source = source

    @property
    def trace(self) -> Trace:
        assert isinstance(self.outcome, Trace), self.outcome
        return self.outcome

    @property
    def failure(self) -> Failure:
        assert isinstance(self.outcome, Failure), self.outcome
        return self.outcome

    def stage(self, name: str) -> Stage:
        return wire.decode_stage(self.reply.stages[name])

    def graph(self, name: str) -> str:
        """The stage, one node a line: `mm: f32[4, 8] = aten.mm.default(x, w)`."""
        lines: list[str] = []
        for node in self.stage(name).nodes:
            called = node.target if node.op == "placeholder" else f"{node.target}({', '.join(node.args)})"
            text = node.op if node.op == "placeholder" else called
            lines.append(
                f"{node.name}: {node.spec} = {text}" if node.op != "output" else f"return {', '.join(node.args)}"
            )
        return "\n".join(lines)

    def dependencies(self) -> list[str]:
        """The names of the project's files that the reply depends on, and of the functions in them."""
        folder = next(dependency for dependency in self.reply.dependencies if "user.py" in dependency).rpartition("/")[
            0
        ]
        return [d.removeprefix(f"{folder}/") for d in self.reply.dependencies if d.startswith(f"{folder}/")]

    def inputs(self) -> list[str]:
        return [f"{i.name}: {i.spec} · {i.source}" for i in self.outcome.inputs]

    def at(self, span: object) -> str:
        """The source text of a span."""
        from fx_lsp.model import Span

        assert isinstance(span, Span)
        lines = [line.encode() for line in self.source.splitlines()][span.line - 1 : span.end_line]
        cut = len(lines[-1]) - span.end_col
        text = b"\n".join(lines)
        return text[span.col : len(text) - cut].decode()


class TraceFixture(Protocol):
    def __call__(
        self,
        source: str,
        name: str = "f",
        comment: str | None = None,
        previous: tuple[InputSpec, ...] = (),
        files: Mapping[str, str] = ...,
        work: str = "",
    ) -> Traced: ...


@pytest.fixture(scope="session")
def warm_torch() -> None:
    """torch and AOTAutograd, imported and used once, so that forked tests find them warm."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # as in a zygote: CUDA does not survive a fork
    from fx_lsp.tracer.process.warmup import import_modules, warm
    from fx_lsp.tracer.run.lru_caches import remember_caches

    import_modules()
    warm()
    remember_caches()
    gc.collect()
    gc.freeze()  # a collection in a fork would copy every object that is there now


@pytest.fixture
def reply(warm_torch: None) -> Callable[[TraceRequest], TraceReply]:
    """Answer a request in a fork of this process."""
    return lambda request: in_fork(lambda: _reply(request))


@pytest.fixture
def trace(reply: Callable[[TraceRequest], TraceReply], tmp_path: Path) -> Iterator[TraceFixture]:
    """Trace a function of a source text (`user.py`; `files` are others) in a forked process, as the server would."""

    def run(
        source: str,
        name: str = "f",
        comment: str | None = None,
        previous: tuple[InputSpec, ...] = (),
        files: Mapping[str, str] = MappingProxyType({}),
        work: str = "",
    ) -> Traced:
        for path, content in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(textwrap.dedent(content).strip("\n") + "\n")
        text = textwrap.dedent(source).strip("\n") + "\n"
        file = tmp_path / "user.py"
        file.write_text(text)
        request = replace(request_for(str(file), text, name, comment, previous), work=work)
        return Traced(reply(request), text)

    yield run


def request_for(
    file: str, text: str, name: str, comment: str | None = None, previous: tuple[InputSpec, ...] = ()
) -> TraceRequest:
    """The request that the server would send for a target of `text`; `comment` stands for a `# fx:` comment."""
    from fx_lsp.tracing.analysis import Texts, analyse
    from fx_lsp.tracing.trace_request import wants_world, world_of

    analysis = analyse(file, text, ())
    assert name in analysis.targets, f"{name} is not among the targets {list(analysis.targets)}"
    request = analysis.request(name, {}, 5.0, previous)
    given = request.given if comment is None else (WrittenInputs(comment, "comment"), *request.given)
    request = replace(request, given=given)
    world = world_of(analysis, Texts({file: text}, {file: analysis})) if wants_world(request, analysis) else None
    return replace(request, world=world)


def _reply(request: TraceRequest) -> TraceReply:
    from fx_lsp.tracer.job import run

    return run(request)


def in_fork(work: Callable[[], T]) -> T:
    """The result of `work()` in a forked child, so that nothing it imports or sets stays behind."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        logging.disable(logging.CRITICAL)
        try:
            payload = pickle.dumps(work())
        except BaseException as error:
            payload = pickle.dumps(AssertionError(f"the tracer raised {error!r}"))
        with os.fdopen(write, "wb") as out:
            out.write(payload)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        data = stream.read()
    os.waitpid(pid, 0)
    result = pickle.loads(data)
    if isinstance(result, BaseException):
        raise result
    return result
