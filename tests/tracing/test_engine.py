"""The engine with tracers that answer at once, or when the test lets them."""

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from benches import Bench, Tracers, traced
from waiting import until

from fx_lsp.errors import TracerFailed, WorkerDied, WorkerStartError, WorkerTimeout
from fx_lsp.model import (
    Failure,
    InputSpec,
    NamedSizes,
    ObservedValue,
    Outcome,
    Span,
    Stage,
    TargetVariant,
    Trace,
    TraceReply,
    TraceRequest,
    Unreached,
)
from fx_lsp.tracing.analysis import analyse, module_name
from fx_lsp.tracing.answers.question import TargetQuestion
from fx_lsp.tracing.engine import Engine, EngineSettings, EngineStatus, TargetState
from fx_lsp.tracing.open_file import SLOW_SECONDS, Focus, TraceProgress, urgency
from fx_lsp.tracing.workers.launch import Launch, Limits
from fx_lsp.tracing.workers.pool import Workers

TEXT = "import torch\n\ndef f(x):\n    return torch.relu(x)\n\ndef g(x):\n    return torch.exp(x)\n"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    for engine in bench.engines:
        await engine.shutdown()


def line_of(engine: Engine, file: str, name: str) -> int:
    state = engine.state(file)
    assert state is not None
    outcome = next(t.outcome for t in state.targets if t.target.name == name)
    assert isinstance(outcome, Trace)
    return outcome.values[0].span.line


def state_of(engine: Engine, file: str, name: str) -> TargetState | None:
    state = engine.state(file)
    return next((t for t in state.targets if t.target.name == name), None) if state is not None else None


def outcome_of(engine: Engine, file: str, name: str) -> Outcome | None:
    target = state_of(engine, file, name)
    return target.outcome if target is not None else None


def progress_of(engine: Engine, file: str, name: str) -> TraceProgress | None:
    target = state_of(engine, file, name)
    return target.progress if target is not None else None


async def test_what_is_known_early_is_shown_until_all_is_known(bench: Bench) -> None:
    def named(request: TraceRequest) -> TraceReply:
        reply = traced(request)
        assert isinstance(reply.outcome, Trace)
        sizes = NamedSizes("input", None, "x", (2,), ("n",))
        return replace(reply, outcome=replace(reply.outcome, named=(sizes,)))

    bench.tracers.first, bench.tracers.answer = traced, named
    bench.tracers.gate.clear()
    engine = bench.begun(TEXT)
    early = await engine.outcome(bench.file, "f")
    assert isinstance(early, Trace) and early.named == ()
    assert isinstance(await engine.stage(bench.file, "f", "forward"), Stage)
    whole = asyncio.ensure_future(engine.outcome(bench.file, "f", final=True))
    await asyncio.sleep(0.05)
    assert not whole.done()
    bench.tracers.gate.set()
    outcome = await whole
    assert isinstance(outcome, Trace) and [sizes.names for sizes in outcome.named] == [("n",)]
    assert bench.tracers.asked.count("f") == 1


async def test_an_opened_file_is_traced(bench: Bench) -> None:
    engine = await bench.opened(TEXT)
    state = bench.state(engine)
    assert state.syntax is None
    assert [(t.target.name, t.pending, t.stale) for t in state.targets] == [("f", False, False), ("g", False, False)]
    assert (line_of(engine, bench.file, "f"), line_of(engine, bench.file, "g")) == (4, 7)
    assert bench.updates and bench.statuses[-1] == EngineStatus("ok", True, "")
    assert any(status.message == "starting torch" for status in bench.statuses)


async def test_what_turns_out_to_be_no_tensor_code_is_shown_nowhere(bench: Bench) -> None:
    def answer(request: TraceRequest) -> TraceReply:
        return TraceReply(Failure("nothing", "")) if request.name == "g" else traced(request)

    bench.tracers = Tracers(answer)
    engine = await bench.opened(TEXT)
    state = bench.state(engine)
    assert [t.target.name for t in state.targets] == ["f"]
    assert isinstance(await engine.outcome(bench.file, "g"), Failure)


async def test_only_what_an_edit_changes_is_traced_again_and_the_rest_moves(bench: Bench) -> None:
    engine = await bench.opened(TEXT)
    await bench.edit(engine, "# a new line\n" + TEXT.replace("exp", "sin"))
    assert sorted(bench.tracers.asked) == ["f", "g", "g"]
    assert (line_of(engine, bench.file, "f"), line_of(engine, bench.file, "g")) == (5, 8)
    stage = await engine.stage(bench.file, "f", "forward")
    assert isinstance(stage, Stage) and stage.nodes[0].spans[0].line == 5
    assert engine.stage_now(bench.file, "f", "forward") == stage


async def test_memory_does_not_grow_with_the_texts_of_a_day(bench: Bench) -> None:
    engine = bench.engine()
    texts = [TEXT.replace("exp(x)", f"exp(x) * {number}") for number in range(9)]
    for text in texts:
        engine.open(bench.file, text, ())
        await bench.quiet(engine)
        await engine._background.wait()  # until it is on disk
    await bench.edit(engine, texts[0])
    assert len(bench.tracers.asked) == 10, "an undone edit is on disk"
    assert len([*engine._answers._answers]) == 2
    engine.close(bench.file)
    assert [*engine._answers._answers, *engine._answers._encoded, *engine._answers._stages] == []


async def test_while_somebody_types_tracing_waits_for_them(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fx_lsp.tracing.open_file.TYPING_SECONDS", 2.0)
    engine = await bench.opened(TEXT)
    for number in range(9):
        engine.open(bench.file, TEXT.replace("exp(x)", f"exp(x) * {number}"), ())
        await engine.targets(bench.file)
    assert len(bench.tracers.asked) <= 3, "the first edit may have been traced at once"
    await bench.quiet(engine)
    assert bench.tracers.requests[-1].source.endswith("exp(x) * 8\n")


@pytest.mark.parametrize("later", [0.0, 0.2])
async def test_who_asks_for_a_graph_while_typing_has_it_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, later: float
) -> None:
    monkeypatch.setattr("fx_lsp.tracing.open_file.TYPING_SECONDS", 1e6)
    engine = bench.begun(TEXT)
    assert isinstance(await engine.outcome(bench.file, "g"), Trace)
    engine.open(bench.file, TEXT.replace("exp(x)", "exp(x) * 2"), ())
    await asyncio.sleep(later)
    assert isinstance(await engine.outcome(bench.file, "g"), Trace)
    assert bench.tracers.requests[-1].source.endswith("exp(x) * 2\n")


async def test_a_syntax_error_keeps_the_last_good_answers_at_their_places(bench: Bench) -> None:
    engine = await bench.opened(TEXT)
    await bench.edit(engine, TEXT.replace("\n\ndef g", "\n\ny = (\n\ndef g"))
    state = bench.state(engine)
    assert state.syntax is not None and state.syntax.kind == "syntax"
    assert [(t.target.name, t.target.name_span.line, t.stale) for t in state.targets] == [
        ("f", 3, True),
        ("g", 8, True),
    ]
    assert line_of(engine, bench.file, "g") == 9
    assert await engine.outcome(bench.file, "f") == state.syntax


async def test_a_reopened_project_is_served_from_disk_without_starting_torch(bench: Bench) -> None:
    first = await bench.opened(TEXT)
    await first.shutdown()
    bench.tracers, bench.statuses = Tracers(), []
    engine = await bench.opened(TEXT)
    assert line_of(engine, bench.file, "g") == 7
    assert isinstance(await engine.stage(bench.file, "g", "forward"), Stage)
    assert bench.tracers.started == 0


async def test_nothing_is_traced_on_open_unless_asked_for(bench: Bench) -> None:
    engine = await bench.opened(TEXT, trace_on_open=False)
    assert bench.tracers.asked == []
    assert isinstance(await engine.outcome(bench.file, "g"), Trace)
    assert bench.tracers.asked == ["g"]


async def test_what_was_known_early_is_traced_to_its_end_and_stored(bench: Bench) -> None:
    bench.tracers.first = traced
    bench.tracers.gate.clear()
    first = bench.begun(TEXT, trace_on_open=False)
    assert isinstance(await first.outcome(bench.file, "g"), Trace)
    await asyncio.sleep(0.05)
    assert bench.tracers.ended == []
    bench.tracers.gate.set()
    await bench.quiet(first)
    await first.shutdown()
    bench.tracers, bench.statuses = Tracers(), []
    engine = await bench.opened(TEXT, trace_on_open=False)
    assert line_of(engine, bench.file, "g") == 7
    assert bench.tracers.asked == []


async def test_in_a_workspace_that_is_not_trusted_texts_are_read_and_nothing_runs(bench: Bench) -> None:
    bench.probe_error = WorkerStartError("an interpreter was started", "interpreter", "")
    engine = await bench.opened(TEXT, may_run=lambda file: False)
    state = bench.state(engine)
    assert [t.target.name for t in state.targets] == ["f", "g"]
    assert "not trusted" in bench.statuses[-1].message and bench.statuses[-1].health == "warning"
    refused = await engine.outcome(bench.file, "f")
    assert isinstance(refused, Failure) and refused.kind == "interpreter"
    assert bench.tracers.started == 0

    bench.probe_error = None
    await engine.configure(EngineSettings(cache_path=bench.cache))
    await bench.quiet(engine)
    assert isinstance(await engine.outcome(bench.file, "f"), Trace)


async def test_each_folder_has_the_interpreter_that_the_client_names(bench: Bench, tmp_path: Path) -> None:
    asked: list[str | None] = []
    engine = bench.engine(interpreters=((str(tmp_path), "/folder/python"),))
    backend = engine._interpreters._backend
    engine._interpreters._backend = replace(backend, find=lambda setting, *_: asked.append(setting) or "python")
    engine.open(bench.file, TEXT, (str(tmp_path),))
    engine.open(bench.file + "2", TEXT, ("/elsewhere",))
    await bench.quiet(engine)
    assert set(asked) == {"/folder/python", None}


async def test_a_request_that_nobody_waits_for_is_stopped(bench: Bench) -> None:
    bench.tracers.gate.clear()
    engine = bench.begun(TEXT, trace_on_open=False)
    request = asyncio.create_task(engine.outcome(bench.file, "g"))
    await until(lambda: bench.tracers.asked)
    request.cancel()
    await bench.quiet(engine)
    assert bench.tracers.ended == ["g"]


async def test_a_superseded_trace_is_stopped_and_the_request_gets_the_new_text(bench: Bench) -> None:
    bench.tracers.gate.clear()
    engine = bench.begun(TEXT)
    request = asyncio.create_task(engine.outcome(bench.file, "f"))
    await until(lambda: len(bench.tracers.asked) >= 2)
    engine.open(bench.file, "\n" + TEXT.replace("relu", "sin"), ())
    await until(lambda: bench.tracers.ended == ["f"])
    bench.tracers.gate.set()
    outcome = await request
    assert isinstance(outcome, Trace) and outcome.values[0].span.line == 5


async def test_what_is_at_the_cursor_comes_first_and_what_is_asked_for_before_that(bench: Bench) -> None:
    text = "import torch\n" + "".join(f"def f{i}(x): return torch.relu(x + {i})\n" for i in range(6))
    bench.tracers.gate.clear()
    engine = bench.begun(text, workers=1)
    await until(lambda: bench.tracers.asked)
    engine.focus(bench.file, 5)
    request = asyncio.create_task(engine.outcome(bench.file, "f5"))
    await asyncio.sleep(0)
    bench.tracers.gate.set()
    await request
    await bench.quiet(engine)
    assert bench.tracers.asked == ["f0", "f5", "f3", "f1", "f2", "f4"]


async def test_what_reaches_little_code_is_traced_before_what_reaches_much(bench: Bench) -> None:
    text = """\
import torch

def generate(x, steps: int):
    for _ in range(steps):
        x = step(x)
    return x

def step(x):
    y = act(x)
    return y + torch.exp(x)

def act(x):
    return torch.relu(x)
"""
    await bench.opened(text, workers=1)
    assert bench.tracers.asked == ["act", "step", "generate"]


async def test_what_was_slow_is_traced_after_the_rest(bench: Bench) -> None:
    engine = await bench.opened(TEXT, workers=1)
    open_file = engine._files[bench.file]
    question = TargetQuestion("f")
    answer, keys = open_file.answers.get(question), open_file.keys
    assert answer is not None and keys is not None
    open_file.answers._answers[question] = replace(answer, seconds=SLOW_SECONDS + 1)
    first, second = (urgency([open_file], Focus(bench.file), keys.targets[name], True) for name in ("f", "g"))
    assert first is not None and second is not None and first > second


async def test_an_unsaved_change_elsewhere_invalidates_what_depends_on_it(bench: Bench, tmp_path: Path) -> None:
    helper = str(tmp_path / "helper.py")
    bench.tracers.answer = lambda request: replace(traced(request), dependencies=(helper,))
    engine = bench.engine()
    engine.open(helper, "A = 1\n", ())
    await bench.edit(engine, TEXT)
    assert bench.tracers.requests[-1].overlays == {helper: "A = 1\n"}
    engine.open(helper, "A = 2\n", ())
    await bench.quiet(engine)
    assert sorted(bench.tracers.asked) == ["f", "f", "g", "g"]
    engine.open(helper, "A = (\n", ())
    await bench.quiet(engine)
    assert len(bench.tracers.asked) == 4


async def test_while_somebody_types_in_a_file_what_depends_on_it_waits_too(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fx_lsp.tracing.open_file.TYPING_SECONDS", 2.0)
    helper = str(tmp_path / "helper.py")
    bench.tracers.answer = lambda request: replace(traced(request), dependencies=(helper,))
    engine = bench.engine()
    engine.open(helper, "A = 0\n", ())
    await bench.edit(engine, TEXT)
    for number in range(1, 9):
        engine.open(helper, f"A = {number}\n", ())
        await engine.targets(helper)
    assert len(bench.tracers.asked) <= 4, "the first edit may have been traced at once"
    await bench.quiet(engine)
    assert bench.tracers.requests[-1].overlays == {helper: "A = 8\n"}


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (WorkerTimeout("slow"), "timeout", "tracing f took more than 60 s"),
        (WorkerDied("gone", -9), "memory", "SIGKILL"),
        (WorkerDied("gone", -11, "Fatal"), "crash", "SIGSEGV"),
        (WorkerDied("it exited with code 3", 3), "crash", "without a result: it exited with code 3"),
        (
            TracerFailed("KeyError: 'x'", "Traceback …"),
            "internal",
            "please report it: KeyError: 'x' (in the work on f)",
        ),
        (ValueError("bug"), "internal", "please report it: ValueError: bug (in the work on f)"),
    ],
)
async def test_a_tracer_that_ends_is_a_failure_at_the_name(
    bench: Bench, error: Exception, kind: str, words: str
) -> None:
    def answer(request: TraceRequest) -> TraceReply:
        raise error

    bench.tracers.answer = answer
    engine = bench.begun(TEXT)
    outcome = await engine.outcome(bench.file, "f")
    assert isinstance(outcome, Failure) and outcome.kind == kind and words in outcome.message
    assert outcome.span == Span(bench.file, 3, 4, 3, 5)


@pytest.mark.parametrize(("seconds", "asked"), [(60.0, 1), (0.0, 2)])
async def test_a_program_that_ran_out_of_time_is_followed_again_in_the_next_session(
    bench: Bench, seconds: float, asked: int
) -> None:
    text = f"{TEXT}\n\nf(torch.ones(2))\n"
    bench.tracers.answer = lambda request: TraceReply(Failure("inputs", "no inputs were found"))
    for _ in range(2):
        engine = bench.begun(text, search_seconds=seconds)
        await engine.outcome(bench.file, "f")
        await bench.quiet(engine)
        await engine.shutdown()
    assert bench.tracers.asked.count("f") == asked


async def test_a_dead_zygote_is_restarted_within_bounds(bench: Bench) -> None:
    def answer(request: TraceRequest) -> TraceReply:
        bench.tracers.pid = None
        raise WorkerDied("the zygote is gone", -9, "its last words")

    bench.tracers.answer = answer
    engine = await bench.opened(TEXT, workers=1)
    assert bench.tracers.started == 4
    assert bench.statuses[-1].health == "error" and "its last words" in bench.statuses[-1].message
    state = bench.state(engine)
    assert state.syntax is not None and state.syntax.kind == "interpreter"
    bench.tracers.answer = traced
    await engine.restart()
    assert isinstance(await engine.outcome(bench.file, "f"), Trace)
    await bench.quiet(engine)
    assert bench.statuses[-1].health == "ok"


@pytest.mark.parametrize("deaths", [1, 9])
async def test_a_zygote_that_is_killed_at_its_start_is_started_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    start, killed = bench.tracers.start, []

    async def start_or_die() -> None:
        if len(killed) < deaths:
            killed.append(deaths)
            raise WorkerStartError("python was ended by SIGKILL", "interpreter", "", was_killed=True)
        await start()

    monkeypatch.setattr(bench.tracers, "start", start_or_die)
    engine = await bench.opened(TEXT, workers=1)
    assert isinstance(await engine.outcome(bench.file, "f"), Trace if deaths == 1 else Failure)
    assert len(killed) == (1 if deaths == 1 else 4)


async def test_an_interpreter_without_torch_is_said_once_at_the_import(bench: Bench) -> None:
    bench.probe_error = WorkerStartError("python has no torch", "no-torch", "Install it.")
    engine = bench.begun(TEXT)
    failure = await engine.outcome(bench.file, "f")
    assert failure == Failure("no-torch", "python has no torch", Span(bench.file, 1, 0, 1, 12), "Install it.")
    state = bench.state(engine)
    assert state.syntax == failure
    assert [t.outcome for t in state.targets] == [None, None]


async def test_cancel_all_stops_every_trace_and_an_edit_starts_them_again(bench: Bench) -> None:
    bench.tracers.gate.clear()
    engine = bench.begun(TEXT)
    request = asyncio.create_task(engine.outcome(bench.file, "f"))
    await until(lambda: len(bench.tracers.asked) >= 2)
    engine.cancel_all()
    with pytest.raises(asyncio.CancelledError):
        await request
    await bench.quiet(engine)
    assert sorted(bench.tracers.ended) == ["f", "g"]
    bench.tracers.gate.set()
    await bench.edit(engine, TEXT + "\n")
    assert line_of(engine, bench.file, "f") == 4


async def test_closing_a_file_stops_its_traces(bench: Bench) -> None:
    bench.tracers.gate.clear()
    engine = bench.begun(TEXT)
    await until(lambda: len(bench.tracers.asked) >= 2)
    engine.close(bench.file)
    await bench.quiet(engine)
    assert sorted(bench.tracers.ended) == ["f", "g"] and engine.state(bench.file) is None


async def test_what_does_not_exist_is_a_failure(bench: Bench) -> None:
    engine = bench.engine()
    assert isinstance(await engine.outcome("/none.py", "f"), Failure)
    engine.open(bench.file, TEXT, ())
    assert isinstance(await engine.outcome(bench.file, "nothing"), Failure)
    missing = await engine.stage(bench.file, "f", "backward")
    assert isinstance(missing, Failure) and missing.hint.endswith("It has:\n  forward")


async def test_a_stage_that_was_lost_is_traced_again(bench: Bench) -> None:
    first = await bench.opened(TEXT)
    await first.shutdown()
    with sqlite3.connect(bench.cache) as connection:
        connection.execute("DELETE FROM stages")
    engine = bench.begun(TEXT)
    assert isinstance(await engine.stage(bench.file, "f", "forward"), Stage)
    assert sorted(bench.tracers.asked) == ["f", "f", "g"]


HERE = Path(__file__).parent
GOOD = "def f(x: 'Tensor'): return x\nnotes = ['traced']\n"


def real_workers(limits: Limits = Limits()) -> Workers:  # noqa: B008
    return Workers(Launch(sys.executable, job="jobs:run", paths=(str(HERE),), warm=False, limits=limits), "fork")


async def test_a_real_process_that_dies_leaves_the_others_alone(bench: Bench) -> None:
    other = bench.file.replace("m.py", "n.py")
    bench.tracers = workers = real_workers()
    engine = bench.begun(GOOD + "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    engine.open(other, GOOD, ())
    crashed, fine = await asyncio.gather(engine.outcome(bench.file, "f"), engine.outcome(other, "f"))
    assert isinstance(crashed, Failure) and "SIGSEGV" in crashed.message
    assert isinstance(fine, Trace) and fine.notes == ("traced",)
    await engine.shutdown()
    assert workers.pid is None


async def test_the_cursor_does_not_wait_for_endless_functions(bench: Bench) -> None:
    bench.tracers = real_workers(Limits(seconds=3600))
    engine = bench.engine(workers=2)
    endless = [bench.file.replace("m.py", f"{name}.py") for name in ("one", "two")]
    for file in endless:
        engine.open(file, f"{GOOD}while True: pass\n", ())
    await until(lambda: len(bench.tracers._running) >= 2)
    engine.open(bench.file, GOOD, ())
    engine.focus(bench.file, 1)
    await until(lambda: isinstance(outcome_of(engine, bench.file, "f"), Trace))
    for file in endless:  # neither was given up
        assert progress_of(engine, file, "f") is TraceProgress.TRACING


async def test_what_is_known_is_shown_while_the_tracers_rest_and_an_edit_wakes_them(bench: Bench) -> None:
    bench.tracers = workers = real_workers(Limits(idle_seconds=0.3))
    engine = bench.begun(GOOD)
    assert isinstance(await engine.outcome(bench.file, "f"), Trace)
    await until(lambda: workers.resting)
    assert workers.pid is None
    assert isinstance(outcome_of(engine, bench.file, "f"), Trace)
    engine.changed_on_disk({str(HERE / "dependency.py"), bench.file})
    await bench.quiet(engine)
    assert workers.resting  # a change on disk wakes nobody
    engine.open(bench.file, GOOD.replace("return x", "return -x"), ())
    assert not workers.resting
    assert isinstance(await engine.outcome(bench.file, "f"), Trace)


def test_module_names_follow_packages(tmp_path: Path) -> None:
    package = tmp_path / "pkg" / "sub"
    package.mkdir(parents=True)
    (tmp_path / "pkg" / "__init__.py").touch()
    (package / "__init__.py").touch()
    root = str(tmp_path)
    assert module_name(str(package / "m.py")) == ("pkg.sub.m", "pkg.sub", root)
    assert module_name(str(package / "__init__.py")) == ("pkg.sub", "pkg.sub", root)
    assert module_name(str(tmp_path / "__main__.py")) == ("main", "", root)


def test_directories_that_relative_imports_go_up_to_are_packages(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "blocks"
    folder.mkdir(parents=True)
    (folder / "attention.py").write_text("from ..utils import norm\nfrom .rotary import turn\n")
    assert module_name(str(folder / "attention.py")) == ("models.blocks.attention", "models.blocks", str(tmp_path))
    one = module_name(str(folder / "attention.py"), "from .rotary import turn\n")
    assert one == ("blocks.attention", "blocks", str(tmp_path / "models"))
    assert module_name(str(folder / "attention.py"), "import torch\n") == ("attention", "", str(folder))


@pytest.mark.parametrize("is_project", [True, False])
def test_what_a_file_imports_is_looked_for_above_it(tmp_path: Path, is_project: bool) -> None:
    """As where a program is started in another directory than that of its models; never outside of the project."""
    for folder in ("task/models", "task/utils", "utils", "lib", "empty", *([".git"] if is_project else [])):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("task/utils/embedding.py", "utils/other.py", "lib/solvers.py"):
        (tmp_path / name).touch()
    file = tmp_path / "task" / "models" / "net.py"
    text = "import torch\nfrom utils.embedding import Embedding\nfrom lib.solvers import solve\nimport empty\n"
    above = (str(tmp_path), str(tmp_path / "task")) if is_project else ()
    assert analyse(str(file), text, ()).roots == (str(file.parent), *above)
    assert analyse(str(file), "import torch\nimport empty\n", ()).roots == (str(file.parent),)


async def test_passes_are_offered_all_targets_that_are_traced_and_graphs_that_are_built(bench: Bench) -> None:
    engine = await bench.opened(TEXT + "\nfrom torch import fx\n\ndef built():\n    return fx.Graph()\n")
    assert [(t.name, t.kind) for t in engine.recent("/another.py")] == [
        ("f", "function"),
        ("g", "function"),
        ("built", "graph"),
    ]


OPTIONAL = "import torch\n\ndef f(x, y=None):\n    if y is not None:\n        x = x * y\n    return torch.relu(x)\n"


def with_variant(request: TraceRequest) -> TraceReply:
    """A target that had no time for its variant; the variant alone reaches line 5."""
    trace = traced(request).outcome
    assert isinstance(trace, Trace)
    line = request.sliced.split("\n").index("        x = x * y") + 1
    inside = Span(request.file, line, 8, line, 17)
    if request.work == "variant=y":
        inputs = (InputSpec("y", "f32[2]", "search", guessed=True),)
        return TraceReply(replace(trace, inputs=inputs, values=(*trace.values, ObservedValue(inside, "x", "f32[2]"))))
    return TraceReply(replace(trace, unreached=(Unreached(inside, "condition"),), variants=(TargetVariant("y"),)))


async def test_a_variant_is_traced_after_the_target_and_added_to_it(bench: Bench) -> None:
    bench.tracers = Tracers(with_variant)
    engine = await bench.opened(OPTIONAL)
    assert [request.work for request in bench.tracers.requests] == ["", "variant=y"]
    assert [request.previous for request in bench.tracers.requests][1] == (), "not the inputs of a variant"

    await bench.edit(engine, f"# moved\n{OPTIONAL}")
    state = bench.state(engine)
    (target,) = state.targets
    assert isinstance(target.outcome, Trace)
    (variant,), (unreached,) = target.outcome.variants, target.outcome.unreached
    assert [(v.name, v.span.line) for v in variant.values] == [("x", 6)]
    assert (variant.inputs[0].spec, unreached.span.line, unreached.variants) == ("f32[2]", 6, ("y",))
    assert len(bench.tracers.requests) == 2, "what is known is not traced again"


async def test_work_with_some_lines_is_known_where_they_stand_now(bench: Bench) -> None:
    engine = bench.begun(TEXT)
    await engine.outcome(bench.file, "f", "checkpoint=4-4")
    engine.open(bench.file, f"# moved\n{TEXT}", ())
    await engine.outcome(bench.file, "f", "checkpoint=5-5")
    assert [request.work for request in bench.tracers.requests if request.work] == ["checkpoint=4-4"]
    await engine.outcome(bench.file, "f", "checkpoint=4-5")
    assert [request.work for request in bench.tracers.requests if request.work][1:] == ["checkpoint=4-5"]


async def test_a_variant_that_is_wrong_is_a_remark(bench: Bench) -> None:
    def answer(request: TraceRequest) -> TraceReply:
        place = Span(request.file, 5, 12, 5, 17)
        wrong = Failure("shape", "sizes differ", place, severity="error")
        return TraceReply(wrong) if request.work else with_variant(request)

    bench.tracers = Tracers(answer)
    engine = await bench.opened(OPTIONAL)
    state = bench.state(engine)
    outcome = state.targets[0].outcome
    assert isinstance(outcome, Trace)
    assert [(remark.message, remark.severity) for remark in outcome.remarks] == [("sizes differ, with y", "error")]


async def test_no_variant_is_traced_unasked_where_nothing_is(bench: Bench) -> None:
    bench.tracers = Tracers(with_variant)
    engine = bench.begun(OPTIONAL, trace_on_open=False)
    await engine.outcome(bench.file, "f")
    await bench.quiet(engine)
    assert [request.work for request in bench.tracers.requests] == [""]


async def test_the_stored_answers_on_a_file_that_is_not_open(bench: Bench, tmp_path: Path):
    engine = await bench.opened(TEXT)
    other = str(tmp_path / "other.py")
    nothing = await engine.stored(other, TEXT, ())
    assert nothing is not None
    assert [(t.target.name, t.outcome) for t in nothing.targets] == [("f", None), ("g", None)]
    engine.close(bench.file)
    assert await engine.stored(bench.file, TEXT, ()) is None  # without an open file, no interpreter runs
    engine.open(other, "", ())
    engine.open(str(tmp_path / "third.py"), TEXT, ())
    await bench.quiet(engine)
    shown = await engine.stored(bench.file, "\n" + TEXT, ())
    assert shown is not None
    assert [(t.target.name, t.stale, t.outcome is not None) for t in shown.targets] == [
        ("f", False, True),
        ("g", False, True),
    ]
    assert not engine.busy
