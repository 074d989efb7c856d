"""What a program does on its way to a target: command lines, workers, registries, data that is absent, files."""

import json

import pytest
from inline_snapshot import snapshot

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width, depth=1):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
"""
TRAIN = """
    import torch
    from user import Net
    HEAD
        model = Net(width, depth)
        model(torch.randn(batch, width))

    if __name__ == "__main__":
        RUN
"""


def script(head: str, run: str, imports: str) -> dict[str, str]:
    """A script that trains, by the lines that begin its function, and what runs it."""
    text = TRAIN.replace("HEAD", head.strip().replace("\n", "\n    ")).replace("RUN", run)
    return {"train.py": text.replace("import torch\n", f"import torch\n    {imports}\n", 1)}


def lines(traced):
    """The inputs that the program gave, with the place."""
    return [f"{i.name}: {i.spec} · {i.detail}" for i in traced.trace.inputs if i.source == "call site"]


CLICK = """
@click.command()
@click.argument("data")
@click.option("--width", default=24)
@click.option("--depth", type=int, default="2")
@click.option("--batch", type=int, required=True)
def main(data, width, depth, batch):
"""
TYPER = """
app = typer.Typer()
@app.command()
def main(data: str, width: int = 24, depth: int = typer.Option(2), batch: int = 2):
"""


@pytest.mark.parametrize(
    ("library", "head", "run"),
    [
        ("click", CLICK, "main()"),
        ("typer", TYPER, "app()"),
        ("fire", "def main(data, width=24, depth=2, batch=2):", "fire.Fire(main)"),
    ],
)
def test_libraries_of_command_lines(trace, library, head, run):
    pytest.importorskip(library)
    traced = trace(NET, "Net", files=script(head, run, f"import {library}"))
    assert [line.rpartition(" · ")[0] for line in lines(traced)] == ["init.width: 24", "init.depth: 2", "x: f32[2, 24]"]


def test_flags_of_a_module(trace):
    pytest.importorskip("absl")
    head = """
FLAGS = flags.FLAGS
flags.DEFINE_integer("width", 24, "")
flags.DEFINE_string("data", None, "", required=True)
def main(argv):
    width, depth, batch = FLAGS.width, 2, 2
"""
    traced = trace(NET, "Net", files=script(head, "app.run(main)", "from absl import app, flags"))
    assert [line.rpartition(" · ")[0] for line in lines(traced)] == ["init.width: 24", "init.depth: 2", "x: f32[2, 24]"]


def test_a_configuration_is_composed(trace):
    pytest.importorskip("hydra")
    head = """
@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(config):
    width, depth, batch = config.net.width, config.net.depth, config.batch
"""
    files = {
        "conf/config.yaml": "defaults:\n  - net: small\n  - _self_\nbatch: 2\n",
        "conf/net/small.yaml": "width: 24\ndepth: 2\n",
    }
    traced = trace(NET, "Net", files={**files, **script(head, "main()", "import hydra")})
    assert [line.rpartition(" · ")[0] for line in lines(traced)] == ["init.width: 24", "init.depth: 2", "x: f32[2, 24]"]


def test_a_file_of_configuration_that_is_required(trace):
    head = """
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    config = json.load(open(parser.parse_args().config))
    width, depth, batch = config["width"], config["depth"], config["batch"]
"""
    files = {"configs/net.json": json.dumps({"width": 24, "depth": 2, "batch": 2}), "other.json": '{"lr": 1}'}
    traced = trace(NET, "Net", files={**files, **script(head, "main()", "import argparse, json")})
    assert lines(traced) == snapshot(
        ["init.width: 24 · train.py:9", "init.depth: 2 · train.py:9", "x: f32[2, 24] · train.py:10"]
    )


WORKER = """
def worker(rank, width, depth, batch):
    torch.distributed.init_process_group("nccl", rank=rank, world_size=2)
    torch.cuda.set_device(rank)
"""


@pytest.mark.parametrize(
    "run",
    [
        "mp.spawn(worker, args=(24, 2, 2), nprocs=2)",
        "mp.Process(target=worker, args=(0, 24, 2, 2)).start()",
    ],
)
def test_the_worker_of_a_process(trace, run):
    files = script(WORKER, run, "import torch.multiprocessing as mp")
    files["train.py"] = files["train.py"].replace(
        "model = Net(width, depth)", "model = nn.parallel.DistributedDataParallel(Net(width, depth))"
    )
    files["train.py"] = files["train.py"].replace("import torch\n", "import torch\n    from torch import nn\n", 1)
    traced = trace(NET, "Net", files=files)
    assert [line.rpartition(" · ")[0] for line in lines(traced)] == ["init.width: 24", "init.depth: 2", "x: f32[2, 24]"]


REGISTRY = """
import torch
from torch import nn

LAYERS, NETS = {}, {}

def register(name, layer):
    LAYERS[name] = layer

def net(cls):
    NETS[cls.__name__] = cls
    return cls

register("gelu", nn.GELU)

@net
class Small(nn.Module):
    def __init__(self, dim=8, layer="gelu"):
        super().__init__()
        self.fc, self.layer = nn.Linear(dim, dim), LAYERS[layer]()

    def forward(self, x):
        return self.layer(self.fc(x))

class Wrapped(nn.Module):
    def __init__(self, name="Small"):
        super().__init__()
        self.inner = NETS[name]()

    def forward(self, x):
        return self.inner(x)

def build(name):
    return NETS[name](dim=14)

if __name__ == "__main__":
    build("Small")(torch.randn(3, 14))
"""


def test_what_is_registered_is_there(trace):
    assert "aten.gelu" in trace(REGISTRY, "Wrapped").graph("forward")


def test_a_factory_takes_a_model_from_a_registry(trace):
    assert lines(trace(REGISTRY, "Small")) == snapshot(["init.dim: 14 · line 33", "x: f32[3, 14] · line 36"])


def test_numbers_of_absent_data_are_made_up_and_told(trace):
    traced = trace(
        NET
        + """
def train_one_epoch(model, loader, optimizer):
    for x, y in loader:
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()

def main():
    corpus = Corpus(open("/nowhere/words.txt"))
    hidden_dim = len(corpus.words)
    model = Net(hidden_dim)
    train_one_epoch(model, corpus.loader, torch.optim.SGD(model.parameters(), 0.1))

if __name__ == "__main__":
    main()
""",
        "train_one_epoch.step",
    )
    assert traced.trace.notes == snapshot(("the data is missing; assumed: hidden_dim=64",))
    assert traced.graph("forward").count("aten.addmm") == 1


def test_what_raises_before_a_call_is_left_out(trace):
    traced = trace(
        NET
        + """
if __name__ == "__main__":
    words = open("/nowhere/words.txt").read()
    model = Net(24, depth=2)
    model.words = words
    model(torch.randn(5, 24))
""",
        "Net",
    )
    assert lines(traced) == snapshot(["init.width: 24 · line 16", "init.depth: 2 · line 16", "x: f32[5, 24] · line 18"])
    assert not any(i.guessed for i in traced.trace.inputs)


def test_what_a_program_writes_goes_nowhere(trace, tmp_path):
    source = (
        NET.replace("super().__init__()", "super().__init__()\n        self.log = log_of('runs/a')")
        + """
import os

def log_of(directory):
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "log.txt"), "w") as log:
        log.write("begun")
    assert os.path.isdir(directory) and os.listdir(directory) == ["log.txt"]
    return open(os.path.join(directory, "log.txt")).read()

if __name__ == "__main__":
    os.makedirs("checkpoints")
    model = Net(24)
    torch.save(model.state_dict(), "checkpoints/net.pt")
    os.remove("user.py")
    model(torch.randn(5, 24))
"""
    )
    traced = trace(source, "Net")
    assert lines(traced) == snapshot(["init.width: 24 · line 26", "x: f32[5, 24] · line 29"])
    assert [path.name for path in tmp_path.iterdir()] == ["user.py"]


def test_a_call_in_a_notebook(trace):
    cells = [
        ["%matplotlib inline\n", "from user import Net\n"],
        ["net = Net(18)\n"],
        ["!ls\n", "import torch\n", "net(torch.randn(5, 18))"],
    ]
    notebook = {
        "cells": [{"cell_type": "markdown", "source": ["# hi"]}, *({"cell_type": "code", "source": s} for s in cells)]
    }
    assert lines(trace(NET, "Net", files={"explore.ipynb": json.dumps(notebook)})) == snapshot(
        ["init.width: 18 · explore.ipynb:4", "x: f32[5, 18] · explore.ipynb:8"]
    )


def test_a_call_in_a_readme(trace):
    readme = """
    # Net

    ```bash
    pip install net
    ```

    ```python
    from user import Net
    this does not parse
    ```

    ```python
    import torch
    from user import Net
    net = Net(22)
    ```

    ```python
    net(torch.randn(2, 22))
    ```
    """
    assert lines(trace(NET, "Net", files={"README.md": readme})) == snapshot(
        ["init.width: 22 · README.md:15", "x: f32[2, 22] · README.md:19"]
    )


def test_a_name_that_the_program_declares_global(trace):
    """What a function on the way assigns is not what the module begins with."""
    train = """
    import json
    import torch
    from user import Net

    config = None

    def run(count):
        Net(config["width"], config["depth"])(torch.randn(count, 24))

    def main():
        global config
        config = json.loads('{"width": 24, "depth": 2}')
        run(5)

    if __name__ == "__main__":
        main()
    """
    traced = trace(NET, "Net", files={"train.py": train})
    assert lines(traced) == snapshot(
        ["init.width: 24 · train.py:8", "init.depth: 2 · train.py:8", "x: f32[5, 24] · train.py:8"]
    )


@pytest.mark.parametrize(
    ("head", "call", "note"),
    [
        (
            "def counted():\n    while True: pass\n",
            "Net(counted())(torch.randn(2, 24))",
            snapshot("train.py was not followed to its end: it takes too long"),
        ),
    ],
    ids=["time"],
)
def test_a_call_that_was_not_followed_is_said_beside_the_guess(head: str, call: str, note: str, trace):
    traced = trace(NET, "Net", files={"train.py": f"import torch\nfrom user import Net\n{head}{call}\n"})
    assert {i.source for i in traced.trace.inputs} == {"search"}
    assert traced.trace.notes == (note,)


DIFFUSION = """
import enum
import numpy as np
import torch

class Kind(enum.Enum):
    NOISE = 1
    IMAGE = 2

def schedule(steps):
    return np.linspace(0.001, 0.02, steps)

class Diffusion:
    def __init__(self, *, betas, kind):
        self.betas = np.array(betas)
        assert (self.betas > 0).all() and self.betas.ndim == 1
        self.kind = kind

    def loss(self, model, x, t):
        noise = torch.randn_like(x)
        return (model(self.noised(x, t, noise)) - noise).pow(2).mean()

    def noised(self, x, t, noise):
        assert self.kind == Kind.NOISE
        scale = torch.from_numpy(self.betas)[t].float()
        return x + scale[:, None] * noise

    def unused(self, x, t):
        return self.noised(x, t, torch.ones_like(x))
"""
SPACED = {
    "spaced.py": """
    from user import Diffusion

    class Spaced(Diffusion):
        def __init__(self, every, **kwargs):
            whole = Diffusion(**kwargs)
            kwargs["betas"] = whole.betas[::every]
            super().__init__(**kwargs)
            self.every = every

        def loss(self, model, *args):
            return super().loss(lambda x: model(x) * self.every, *args)
    """,
    "factory.py": """
    import user as u
    from spaced import Spaced

    def create(steps=100):
        return Spaced(every=4, betas=u.schedule(steps), kind=u.Kind.NOISE)
    """,
    "train.py": """
    import torch
    from torch import nn
    from factory import create
    import nowhere

    def main(path):
        diffusion = create(steps=40)
        model = nn.Linear(16, 16)
        rows = nowhere.read(path)
        for x in [rows]:
            diffusion.loss(model, torch.randn(len(rows), 16), torch.randint(0, 10, (len(rows),)))

    if __name__ == "__main__":
        main("rows.csv")
    """,
}


def test_an_object_of_a_subclass_that_a_factory_makes_in_another_file(trace):
    traced = trace(DIFFUSION, "Diffusion.noised", files=SPACED)
    assert lines(traced) == snapshot(
        [
            "init.betas: ndarray(…) · train.py:7",
            "init.kind: <Kind.NOISE: 1> · train.py:7",
            "x: f32[2, 16] · train.py:11",
            "t: i64[2] · train.py:11",
            "noise: f32[2, 16] · train.py:11",
        ]
    )


def test_of_a_method_that_is_overridden_that_of_the_class_is_traced(trace):
    traced = trace(DIFFUSION, "Diffusion.loss", files=SPACED)
    assert lines(traced) == snapshot(
        [
            "init.betas: ndarray(…) · train.py:7",
            "init.kind: <Kind.NOISE: 1> · train.py:7",
            "model: Spaced.loss.<locals>.<lambda> · train.py:11",
            "x: f32[2, 16] · train.py:11",
            "t: i64[2] · train.py:11",
        ]
    )


def test_a_method_that_the_program_does_not_come_to_has_the_programs_object(trace):
    traced = trace(DIFFUSION, "Diffusion.unused", files=SPACED)
    assert lines(traced) == snapshot(["init.betas: ndarray(…) · train.py:7", "init.kind: <Kind.NOISE: 1> · train.py:7"])


def test_an_argument_that_holds_a_module(trace):
    source = """
    import torch
    from torch import nn

    class Scaled:
        def __init__(self, model):
            self.model = model

        def __call__(self, x):
            return self.model(x) * 2

    def loss(model, x):
        return torch.relu(model(x)).mean()

    if __name__ == "__main__":
        linear = nn.Linear(8, 4)
        HELD
    """
    for held in ("loss(Scaled(linear), torch.randn(2, 8))", "loss(linear.forward, torch.randn(2, 8))"):
        traced = trace(source.replace("HELD", held), "loss")
        assert "mm" in traced.graph("joint")


TRAINER = """
import torch
from torch import nn

class Trainer:
    def __init__(self, rows, width):
        self.rows = rows
        self.scale = torch.ones(width)
        self.writer = make_writer()
        self.net = nn.Linear(width, width)

    def scaled(self, x):
        return self.net(x) * self.scale

    def logged(self, x):
        scaled = x * self.scale
        self.writer.add(scaled.mean())
        return scaled

def make_writer():
    from nowhere import Writer
    return Writer()
"""
TRAINS = {
    "train.py": """
    from user import Trainer

    def main(path):
        rows = open(path).read()
        trainer = Trainer(rows, width=24)
        trainer.fit()

    if __name__ == "__main__":
        main("rows.csv")
    """
}


def test_a_constructor_goes_on_after_what_cannot_be_had(trace):
    traced = trace(TRAINER, "Trainer.scaled", files=TRAINS)
    assert lines(traced) == snapshot(["init.width: 24 · train.py:5"])


def test_a_constructor_goes_on_without_a_program(trace):
    traced = trace(TRAINER, "Trainer.scaled")
    assert [i.name for i in traced.trace.inputs] == snapshot(["init.rows", "init.width", "x"])


def test_what_needs_something_absent_of_an_object_says_what_is_missing(trace):
    failure = trace(TRAINER, "Trainer.logged", files=TRAINS).failure
    assert (failure.kind, failure.message) == snapshot(
        ("import", "it needs a value that is unavailable: ModuleNotFoundError: No module named 'nowhere'")
    )


def test_a_package_that_another_file_misses(trace):
    files = {
        "helpers.py": """
        import torch
        import nowhere

        def device():
            return torch.device("cpu")

        def read(path):
            return nowhere.read(path)
        """,
        "train.py": """
        import torch
        from user import Net
        from helpers import device, read

        def main(path):
            width = 24
            rows = read(path)
            model = Net(width).to(device())
            model(torch.zeros(len(rows), width, device=device()))

        if __name__ == "__main__":
            main("rows.csv")
        """,
    }
    traced = trace(NET, "Net", files=files)
    assert lines(traced) == snapshot(["init.width: 24 · train.py:8", "x: f32[2, 24] · train.py:9"])


REGISTERED = """
import torch
from user import Net

def small(width):
    return Net(width)

def large(checkpoint=None):
    return Net(width=36)
"""


def test_a_package_imports_more_of_a_file_than_runs_of_it(trace):
    files = {"package/__init__.py": "from .nets import small, large", "package/nets.py": REGISTERED}
    inputs = lines(trace(NET, "Net", files=files))
    assert inputs[0].startswith("init.width: 36")
