"""A program is run once for all targets that it calls, and an edit of one of them costs a trace of that."""

import asyncio
import os
import re
import signal
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from difflib import unified_diff
from pathlib import Path
from random import Random
from typing import Any

import pytest
from benches import described, inputs
from waiting import is_running, until
from warm import warm_python

from fx_lsp.model import Failure, Outcome, Trace
from fx_lsp.sandbox.usage import memory_of
from fx_lsp.tracing.engine import Engine, EngineSettings
from fx_lsp.tracing.workers.interpreter import default_backend
from fx_lsp.tracing.workers.pool import Limits, Mode

pytestmark = pytest.mark.torch

MODEL = """
import torch
from torch import nn

import layers


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.to_heads = nn.Linear(dim, dim)
        self.heads = heads
        self.cache = None

    def forward(self, x, mask=None):
        b, t, d = x.shape
        y = self.to_heads(x).view(b, t, self.heads, d // self.heads)
        if self.cache is not None:
            y = y + self.cache
        self.cache = y
        return y


class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed = nn.Embedding(config["words"], config["dim"])
        self.block = Block(config["dim"], config["heads"])
        self.drop = nn.Dropout(0.1)

    def forward(self, tokens):
        return self.drop(self.block(self.embed(tokens)))


def loss(y, scale):
    return (y * scale).mean()


def unused(x, y):
    return x @ y
"""
TRAIN = """
import torch

from counts import count
from model import Net, loss


def main():
    count("program run")
    net = Net({"words": 100, "dim": 24, "heads": 3})
    net.double()
    net.eval()
    text = open("missing.txt").read()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(1000):
        tokens = torch.randint(0, 100, (2, 7))
        value = loss(net(tokens), 3.0)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
"""


class Project:
    """The files of a project, and an engine that has its model open; `counted` is what was run of it how often."""

    def __init__(self, folder: Path, mode: Mode = "fork", counting: bool = False) -> None:
        self.folder, self.counts = folder, folder.parent / "counts.txt"
        counted = f"open({str(self.counts)!r}, 'a').write(what + '\\n')" if counting else "pass"
        self.write("pyproject.toml", "")
        self.write("counts.py", f"def count(what):\n    {counted}\n")
        self.write("layers.py", "from counts import count\ncount('project imported')\n")
        self.write("model.py", MODEL)
        self.write("train.py", TRAIN)
        limits = Limits(confined=not counting)
        settings = EngineSettings(interpreter=warm_python(), workers=1, limits=limits, trace_on_open=False)
        self.engine = Engine(settings, lambda file: None, lambda status: None, default_backend(mode))

    @property
    def model(self) -> str:
        return str(self.folder / "model.py")

    @property
    def processes(self) -> list[int]:
        """The processes of its world."""
        tracers: Any = self.engine._interpreters.all[0]._tracers
        return [pid for world in tracers._worlds._worlds for pid in (world.pid, *processes_of(world.pid))]

    @property
    def is_starting(self) -> bool:
        """Return True while a world starts."""
        interpreters = self.engine._interpreters.all
        tracers: Any = interpreters[0]._tracers if interpreters else None
        return tracers is not None and bool(tracers._worlds._starting)

    @property
    def counted(self) -> list[str]:
        lines = self.counts.read_text().splitlines() if self.counts.exists() else []
        return sorted(f"{line} {lines.count(line)}" for line in {*lines})

    def write(self, name: str, text: str) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / name).write_text(text)

    async def outcome(self, name: str, text: str = MODEL) -> Outcome:
        self.engine.open(self.model, text, (str(self.folder),))
        return await self.engine.outcome(self.model, name, final=True)

    async def result(self, name: str, text: str) -> object:
        """Return what is told of a target; None for a text that does not have it."""
        self.engine.open(self.model, text, (str(self.folder),))
        targets = await self.engine.targets(self.model)
        if isinstance(targets, Failure) or name not in [target.name for target in targets]:
            return None
        return described(await self.outcome(name, text))

    async def end_worlds(self) -> None:
        tracers: Any = self.engine._interpreters.all[0]._tracers
        await tracers._worlds.close()

    async def trace(self, name: str, text: str = MODEL) -> Trace:
        outcome = await self.outcome(name, text)
        assert isinstance(outcome, Trace), outcome
        return outcome


@pytest.fixture
def mode() -> Mode:
    return "fork"


@pytest.fixture
async def project(tmp_path: Path, mode: Mode) -> AsyncIterator[Project]:
    project = Project(tmp_path / "project", mode)
    yield project
    await project.engine.shutdown()


@pytest.fixture
async def counting(tmp_path: Path) -> AsyncIterator[Project]:
    """A project whose code says in a file how often it runs, which confined code could not."""
    project = Project(tmp_path / "project", counting=True)
    yield project
    await project.engine.shutdown()


in_both_modes = pytest.mark.parametrize("mode", ["fork", "spawn"])
"""Also without fork, as on Windows: each trace then has a process of its own, which runs the program itself."""


@in_both_modes
async def test_targets_have_what_the_program_passes(project: Project) -> None:
    assert inputs(await project.trace("Net")) == [
        "init.config['words']: 100 (call site, train.py:10)",
        "init.config['dim']: 24 (call site, train.py:10)",
        "init.config['heads']: 3 (call site, train.py:10)",
        "self.training: False (call site, train.py:17)",
        "tokens: i64[2, 7] (call site, train.py:17)",
    ]
    assert inputs(await project.trace("loss")) == [
        "y: f64[2, 7, 3, 8] (call site, train.py:17)",
        "scale: 3.0 (call site, train.py:17)",
    ]
    assert inputs(await project.trace("unused"))[0].endswith("(search)")


async def test_a_program_runs_once_for_all_its_targets(counting: Project) -> None:
    for name in ("Net", "Block", "loss", "unused"):
        await counting.trace(name)
    assert counting.counted == ["program run 1", "project imported 1"]


@in_both_modes
async def test_a_target_finds_its_object_as_it_was_at_the_first_call(project: Project) -> None:
    block = await project.trace("Block")
    assert "x: f64[2, 7, 24] (call site, train.py:17)" in inputs(block)
    assert not any("cache" in value.name for value in block.values), "the cache was empty then"


async def test_an_edit_of_a_target_runs_no_program_again(counting: Project) -> None:
    before = await counting.trace("loss")
    edited = MODEL.replace("    return (y * scale).mean()", "    y = y * scale\n\n    return y.exp().mean()")
    after = await counting.trace("loss", edited)
    assert [stage.ops for stage in after.stages] != [stage.ops for stage in before.stages]
    assert inputs(after) == inputs(before)
    assert counting.counted == ["program run 1", "project imported 1"]


async def test_an_edit_of_what_has_run_before_runs_it_again(counting: Project) -> None:
    await counting.trace("Block")
    edited = MODEL.replace("nn.Linear(dim, dim)", "nn.Linear(dim, 2 * dim)")
    block = await counting.outcome("Block", edited)
    assert isinstance(block, Failure)
    assert "[2, 7, 3, 8]" in block.message
    assert counting.counted == ["program run 2", "project imported 2"]


NAMES = ("Block", "Net", "loss", "unused")
EDITS = [
    ("unused", "return x @ y", "return x.t() @ y"),
    ("loss", "(y * scale).mean()", "(y / scale).sum()"),
    ("Block", "        self.cache = y\n", "        # nothing is kept\n        pass\n"),
    ("Block", "if self.cache is not None:", "if self.cache is None:"),
    ("Block", "y = y + self.cache", "y = y * 2\n            y = y + 1"),
    ("Block", "b, t, d = x.shape", "b, t, d = x.size()"),
    ("Net", "self.drop(self.block(self.embed(tokens)))", "self.block(self.embed(tokens)).relu()"),
    ("Net", "nn.Dropout(0.1)", "nn.Identity()"),
    ("Block", "mask=None", "mask=1"),
    ("loss", "def loss(y, scale):", "def loss(y, scale, power=1):"),
    ("Block", "y = y + 1", "y = y + 1 + len(super().__repr__()) * 0"),
    ("unused", "return x.t() @ y", "return (lambda a: a.t() @ y)(x)"),
    ("Net", "import layers", "import layers\n\ntorch.set_default_dtype(torch.float16)"),
]
"""The target that is edited, and its old and its new text."""


RANDOM_EDITS = int(os.environ.get("FX_LSP_EDITS", "6"))
"""The number of random edits; many more find what nobody thought of."""


def edited_texts() -> Iterator[tuple[str, str]]:
    """Yield later texts of the model, each with a target: edit upon edit as somebody makes them, then single lines
    changed at random.
    """
    text = MODEL
    for name, old, new in EDITS:
        assert old in text, old
        text = text.replace(old, new)
        yield name, text
    random = Random(0)
    changes: list[Callable[[str], list[str]]] = [
        lambda line: [],
        lambda line: [line, line],
        lambda line: [line, "", f"{line[: len(line) - len(line.lstrip())]}# a comment"],
        lambda line: [line.replace("*", "+").replace("@", "*")],
        lambda line: [line.replace("y", "x")],
        lambda line: [line.replace("self", "x")],
        lambda line: [line.replace("dim", "2 * dim")],
        lambda line: [re.sub(r"return (.*)", r"return (\1) * 2", line)],
        lambda line: [re.sub(r"def (\w+)\((.*)\)", r"def \1(\2, extra=None)", line)],
        lambda line: [re.sub(r"^( *)def ", r"\1@torch.no_grad()\n\1def ", line)],
        lambda line: [line.replace("(", "(1 * ", 1)],
    ]
    lines = MODEL.splitlines()
    for edit in range(RANDOM_EDITS):
        number = random.choice([number for number, line in enumerate(lines) if line])
        change = random.choice(changes)
        yield NAMES[edit % 4], "\n".join([*lines[:number], *change(lines[number]), *lines[number + 1 :], ""])


async def test_edits_give_what_a_fresh_process_gives(project: Project, tmp_path: Path) -> None:
    fresh = Project(tmp_path / "fresh")
    different: list[tuple[str, str]] = []
    for number, (edited, text) in enumerate(edited_texts()):
        for name in {edited, NAMES[number % 4]}:
            warm, cold = await asyncio.gather(project.result(name, text), fresh.result(name, text))
            if warm != cold:
                different.append((name, "\n".join(unified_diff(MODEL.splitlines(), text.splitlines(), n=0))))
        await fresh.end_worlds()
    await fresh.engine.shutdown()
    assert not different


async def test_a_call_that_is_added_later_counts(project: Project) -> None:
    text = "import torch\n\n\ndef scaled(x):\n    return x * 2\n"
    assert inputs(await project.trace("scaled", text))[0].endswith("(search)")
    later = f"{text}\n\nif __name__ == '__main__':\n    scaled(torch.zeros(3, 5))\n"
    assert inputs(await project.trace("scaled", later)) == ["x: f32[3, 5] (call site, line 9)"]


async def test_what_is_written_to_disk_starts_another_world(project: Project) -> None:
    await project.trace("loss")
    project.write("train.py", TRAIN.replace("(2, 7)", "(5, 7)"))
    project.engine.close(project.model)
    assert inputs(await project.trace("loss"))[0] == "y: f64[5, 7, 3, 8] (call site, train.py:17)"


async def test_an_edit_of_another_open_file_counts(counting: Project) -> None:
    helpers, text = str(counting.folder / "helpers.py"), "def double(x):\n    return x * 2\n"
    counting.write("helpers.py", text)
    model = MODEL.replace("import layers", "import layers\nfrom helpers import double").replace(
        "x @ y", "double(x) @ y"
    )
    counting.engine.open(helpers, text, (str(counting.folder),))
    await counting.engine.targets(helpers)
    before = await counting.trace("unused", model)
    counting.engine.open(helpers, text.replace("x * 2", "x * 2 + 1"), (str(counting.folder),))
    await counting.engine.targets(helpers)
    counting.engine.close(counting.model)
    after = await counting.trace("unused", model)
    assert after.stages[0].ops == before.stages[0].ops + 1
    assert counting.counted == ["project imported 1"]


LACKING = """
import torch
from model import Net, loss


class Data(torch.utils.data.Dataset):
    def __init__(self, folder):
        self.rows = open(folder + "/rows.txt").read().split()
        if not self.rows:
            raise RuntimeError("no rows")

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return torch.tensor([int(self.rows[index])])


def train(net, optimizer):
    try:
        data = Data("first")
    except ValueError:
        data = Data("second")
    for tokens in torch.utils.data.DataLoader(data, 4):
        assert tokens.shape[1] == 7
        value = loss(net(tokens), 3.0)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()


net = Net({"words": 100, "dim": 24, "heads": 3}).double()
try:
    train(net, torch.optim.SGD(net.parameters(), 0.1))
except torch.cuda.OutOfMemoryError:
    print("too large")
LATER
"""


@in_both_modes
async def test_a_call_in_a_loop_over_missing_data_has_its_object(project: Project) -> None:
    project.write("train.py", LACKING.replace("LATER", ""))
    trace = await project.trace("Net")
    assert inputs(trace)[:3] == [
        "init.config['words']: 100 (call site, train.py:32)",
        "init.config['dim']: 24 (call site, train.py:32)",
        "init.config['heads']: 3 (call site, train.py:32)",
    ]
    assert trace.outputs[0].startswith("f64[")


DIGITS = """
from torch.utils.data import Dataset


class MNIST(Dataset):
    def __init__(self, root, train=True, transform=None):
        self.transform = transform
        raise RuntimeError("not found")

    def __getitem__(self, index):
        return self.transform(self.data[index]), int(self.targets[index])

    def __len__(self):
        return len(self.data)
"""
DIGITS_STEP = """
from torch import nn
from torch.utils.data import DataLoader
from torchvision.datasets.mnist import MNIST

train = MNIST("data", transform=lambda image: image[None] / 255)
loader = DataLoader(train, batch_size=64, shuffle=True)
net = nn.Sequential(LAYERS)
for images, labels in loader:
    loss = nn.functional.cross_entropy(net(images), labels)
    loss.backward()
"""


@in_both_modes
async def test_a_missing_dataset_has_the_samples_that_its_package_documents(project: Project) -> None:
    (project.folder / "torchvision" / "datasets").mkdir(parents=True)
    for name, text in {"__init__": "", "datasets/__init__": "", "datasets/mnist": DIGITS}.items():
        project.write(f"torchvision/{name}.py", text)
    traced = await project.trace("step", DIGITS_STEP.replace("LAYERS", "nn.Flatten(), nn.Linear(784, 10)"))
    assert inputs(traced) == [
        "images: f32[64, 1, 28, 28] (call site, line 9)",
        "labels: i64[64] (call site, line 9)",
    ]
    failure = await project.outcome("step", DIGITS_STEP.replace("LAYERS", "nn.Linear(784, 10)"))
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.severity) == ("shape", "error")
    assert "matrices of 1792×28 and 784×10 cannot be multiplied" in failure.message


@in_both_modes
async def test_a_later_call_that_has_its_data_counts_more(project: Project) -> None:
    project.write("train.py", LACKING.replace("LATER", "net(torch.zeros(2, 9, dtype=torch.long))"))
    assert inputs(await project.trace("Net"))[-1] == "tokens: i64[2, 9] (call site, train.py:37)"


@in_both_modes
async def test_statements_that_nobody_knows_count(project: Project) -> None:
    project.write(
        "train.py",
        textwrap.dedent(
            """
            import torch
            from model import Net

            torch.set_default_dtype(torch.bfloat16)
            net = Net({"words": 10, "dim": 6, "heads": 2})
            for parameter in net.parameters():
                parameter.requires_grad_(False)
            for _ in range(2):
                net(torch.zeros(3, 4, dtype=torch.long))
            """
        ),
    )
    trace = await project.trace("Net")
    assert [stage.name for stage in trace.stages] == ["inference"]
    assert trace.outputs == ("bf16[3, 4, 2, 3]",)


@in_both_modes
async def test_a_program_that_needs_a_gpu_hears_of_one(project: Project) -> None:
    project.write(
        "train.py",
        textwrap.dedent(
            """
            import torch
            from model import *

            net = Net({"words": 10, "dim": 6, "heads": 2}).cuda()
            device = "cuda" if torch.cuda.is_available() else "cpu"
            for _ in range(2):
                net(torch.zeros(3, 4, dtype=torch.long, device=device))
            """
        ),
    )
    assert inputs(await project.trace("Net"))[-1] == "tokens: i64[3, 4]@cuda (call site, train.py:8)"


async def test_parked_processes_are_ended_when_they_have_too_much_memory(project: Project) -> None:
    lines = "".join(f"kept{n} = b'x' * (400 << 20)\nhead{n}(torch.ones({n}, 2))\n" for n in range(1, 6))
    heads = "".join(f"def head{n}(x):\n    return x + {n}\n\n\n" for n in range(1, 6))
    project.write("train.py", f"import torch\nfrom model import *\n\n{lines}")
    for _ in range(2):
        for n in range(1, 6):
            trace = await project.trace(f"head{n}", f"import layers\nimport torch\n\n\n{heads}")
            assert inputs(trace) == [f"x: f32[{n}, 2] (call site, train.py:{2 * n + 3})"]
        await until(lambda: sum(map(memory_of, project.processes)) < 1500 << 20)
        project.engine.close(project.model)


async def test_a_world_ends_when_nobody_asks_it(project: Project) -> None:
    await project.engine.configure(replace(project.engine._settings, limits=Limits(idle_seconds=1)))
    await project.trace("loss")
    processes = project.processes
    assert processes
    await until(lambda: not any(map(is_running, processes)))
    assert inputs(await project.trace("loss", MODEL + "\n\n# later\n"))[0].endswith("(call site, train.py:17)")


async def test_a_world_serves_others_if_the_request_that_starts_it_is_cancelled(counting: Project) -> None:
    async def starts() -> None:
        while not counting.is_starting:
            await asyncio.sleep(0)

    request = asyncio.ensure_future(counting.trace("loss"))
    await asyncio.wait_for(starts(), 600)
    counting.engine.cancel_all()
    with suppress(asyncio.CancelledError):
        await request
    await until(lambda: not counting.is_starting)
    (world,) = counting.processes
    await counting.trace("loss")
    assert counting.processes[0] == world, "it is used, so that it also ends with the others"
    assert counting.counted == ["program run 1", "project imported 1"]


async def test_a_world_and_what_it_parked_go_on_after_they_were_stopped(project: Project) -> None:
    await project.trace("loss")
    for pid in project.processes:
        os.kill(pid, signal.SIGSTOP)
    edited = MODEL.replace("(y * scale).mean()", "(y * scale).sum()")
    trace = await asyncio.wait_for(project.trace("loss", edited), 600)
    assert inputs(trace)[0].endswith("(call site, train.py:17)")


HOSTILE = {
    "catches everything": "    try: net(torch.zeros(1, 2, dtype=torch.long))\n    except BaseException: pass\n",
    "closes what it has not opened": "    import os; os.closerange(3, 4096)\n",
    "ends itself": "    import os; os._exit(3)\n",
    "never ends": "    while True: pass\n",
    "sleeps": "    import threading; threading.Thread(target=__import__('time').sleep, args=(99,)).start()\n",
    "recurses": "    def again(): return again()\n    again()\n",
    "kills its parent": "    import os, signal; os.kill(os.getppid(), signal.SIGKILL)\n",
}


@pytest.mark.parametrize("lines", HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_program_keeps_nothing_from_being_traced(project: Project, lines: str) -> None:
    project.write("train.py", TRAIN.replace("    text = open", f"{lines}    text = open"))
    for name in ("Block", "loss", "unused"):
        await project.trace(name)
    processes = project.processes
    assert processes
    await project.engine.shutdown()
    assert not [pid for pid in processes if is_running(pid)]


LIE = """
import sys
links = sys.modules["fx_lsp.tracer.process.links"]
send = links.Link.send

def lie(self, header, descriptors=()):
    if "forked" in header or "exited" in header:
        header = {{**header, {0}}}
    send(self, header, descriptors)

links.Link.send = lie
"""
LIES = {
    "another process": "'pid': {pid}",
    "the group of the server": "'pid': 0",
    "every process": "'pid': -1",
    "no number": "'pid': 'x'",
    "no status": "'status': None",
    "no files": "'forked': None, 'read': 7",
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
async def test_a_world_that_lies_about_its_processes_costs_only_itself(project: Project, lie: str) -> None:
    victim = await asyncio.create_subprocess_exec("sleep", "600", start_new_session=True)
    project.write("layers.py", LIE.format(lie.format(pid=victim.pid)))
    try:
        for edit in range(2):
            assert isinstance(await project.trace("loss", f"{MODEL}\n# {edit}\n"), Trace)
        await project.engine.shutdown()
        assert victim.returncode is None and is_running(victim.pid)
    finally:
        victim.kill()
        await victim.wait()


FORGED = {
    "a message that is not one": "{}",
    "a file that is not one": "{'parked': '', 'file': [], 'pid': 1, 'read': {}}",
    "functions that are not some": "{'ended': 7, 'calls': 7}",
    "a process of another": "{'parked': 'f', 'file': __file__, 'pid': 1, 'read': {}}",
    "a text that is very deep": "'[' * 100_000",
}
FORGE = """
import gc, os, socket, struct, sys
links, parked, compilers = (sys.modules[f"fx_lsp.tracer.process.{n}"] for n in ("links", "parked", "compilers"))
forged = MESSAGE
socket.send_fds(compilers.requests.end, [b"c"], [os.open(os.devnull, os.O_RDONLY)])
for link in [each for each in gc.get_objects() if type(each) is links.Link]:
    if isinstance(forged, str):
        link._socket.sendall(struct.pack(">II", len(forged), 0) + forged.encode())
    else:
        link.send(forged, [os.open(os.devnull, os.O_RDONLY)])
"""


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
async def test_a_forged_message_of_a_program_costs_only_that(project: Project, forged: str) -> None:
    """Neither its world nor the zygote ends."""
    project.write("forge.py", FORGE.replace("MESSAGE", forged))
    project.write("train.py", TRAIN.replace("    text = open", "    import forge\n    text = open"))
    assert isinstance(await project.trace("loss"), Trace)
    (world, *_) = project.processes
    assert isinstance(await project.trace("loss", f"{MODEL}\n# the same\n"), Trace)
    assert world in project.processes
    tracers: Any = project.engine._interpreters.all[0]._tracers
    assert not tracers._deaths


def processes_of(pid: int) -> list[int]:
    """Return the processes below one."""
    children = [int(c) for task in Path(f"/proc/{pid}/task").glob("*/children") for c in task.read_text().split()]
    return [*children, *(inner for child in children for inner in processes_of(child))]
