"""What code means by parameters of which it says little: their classes, their uses, what the file has besides."""

import pytest
from inline_snapshot import snapshot

HEAD = """
import torch
import torch.nn.functional as F
from torch import nn
"""


def guessed(traced):
    """The inputs, with where each is from."""
    return [f"{i.name}: {i.spec} · {i.source}" for i in traced.trace.inputs if i.source != "default"]


def test_a_model_that_another_object_calls(trace):
    traced = trace(
        """
        import torch

        class Wrapped:
            def __init__(self, model):
                self.model = model

            def __call__(self, x, steps):
                return self.model(x, steps * 2)

        def sample(model, x: torch.Tensor, t: torch.Tensor):
            return Wrapped(model)(x, t).tanh() + x
        """,
        "sample",
    )
    assert traced.inputs() == snapshot(
        ["model: lambda x, *others, **named: x · search", "x: f32[8, 32] · search", "t: f32[12, 96] · search"]
    )


def test_a_model_of_which_nobody_knows_what_it_gives(trace):
    traced = trace(
        """
        import torch

        class Wrapped:
            def __init__(self, model):
                self.model = model

            def __call__(self, x, steps):
                return self.model(x, steps * 2)

        def sample(model, x: torch.Tensor, t: torch.Tensor):
            mean, log_variance = Wrapped(model)(x, t).split(x.shape[1], dim=1)
            return mean + torch.exp(log_variance) * x
        """,
        "sample",
    )
    assert traced.inputs() == snapshot(
        ["model.result: f32[4, 64] · search", "x: f32[4, 32] · search", "t: f32[12, 96] · search"]
    )
    assert traced.trace.ops("backward")


def test_what_is_taken_backwards_is_an_array(trace):
    traced = trace(
        """
        import numpy as np
        import torch

        def mirrored(rows, x: torch.Tensor):
            return x.relu() * torch.from_numpy(np.tril(rows[:, ::-1]).copy()).sum()
        """,
        "mirrored",
    )
    assert traced.inputs() == snapshot(
        ["rows: np.linspace(0.01, 0.99, 256).reshape(64, 4) · search", "x: f32[4, 64] · search"]
    )


def test_objects_in_objects_have_what_is_read_of_them(trace):
    source = """
    import numpy as np

    class Critic(nn.Module):
        def __init__(self, env, cfg):
            super().__init__()
            rows, columns = env.board.shape
            self.fc = nn.Linear(np.array(env.seen.shape).prod() + env.actions.n + rows, cfg["net"]["width"])

        def forward(self, x, a):
            return self.fc(torch.cat([x, a], 1))
    """
    assert guessed(trace(HEAD + _dedented(source), "Critic")) == snapshot(
        [
            "init.env: SimpleNamespace(actions=namespace(n=2), board=namespace(shape=(64, 64)), "
            "seen=namespace(shape=(64,))) · search",
            "init.cfg: {'net': {'width': 8}} · search",
            "x: f32[4, 8, 130] · search",
            "a: f32[4, 16, 130] · search",
        ]
    )


def test_numbers_that_a_configuration_leaves_open(trace):
    source = """
    from dataclasses import dataclass

    @dataclass
    class Plan:
        width: int = None
        entries: int = -1
        rate: float = 0.1

    class Table(nn.Module):
        def __init__(self, plan: Plan):
            super().__init__()
            self.rows = nn.Embedding(plan.entries, plan.width)
            self.drop = nn.Dropout(plan.rate)

        def forward(self, numbers):
            return self.drop(self.rows(numbers))
    """
    assert guessed(trace(HEAD + _dedented(source), "Table")) == snapshot(
        ["init.plan: Plan(width=8, entries=2) · search", "numbers: i64[4, 8] · search"]
    )


def test_a_configuration_without_open_numbers_is_left_as_it_is(trace):
    source = """
    class Plan:
        def __init__(self, width: int = 24):
            self.width = width

    class Table(nn.Module):
        def __init__(self, plan: Plan):
            super().__init__()
            self.up = nn.Linear(plan.width, 8)

        def forward(self, x):
            return self.up(x)
    """
    assert guessed(trace(HEAD + _dedented(source), "Table"))[0] == "init.plan: Plan() · annotation"


def test_a_call_with_proxies_is_none(trace):
    """A transformation of graphs calls a module with what stands for tensors."""
    source = """
    from torch import fx

    class Gate(nn.Module):
        def forward(self, left, right):
            return torch.sigmoid(left) * right

    def recorded(module):
        graph = fx.Graph()
        tracer = fx.proxy.GraphAppendingTracer(graph)
        left, right = (fx.Proxy(graph.placeholder(name), tracer) for name in ("left", "right"))
        return module(left, right)

    recorded(Gate())
    """
    assert guessed(trace(HEAD + _dedented(source), "Gate")) == snapshot(
        ["left: f32[4, 8, 64] · search", "right: f32[4, 8, 64] · search"]
    )


def test_an_abstract_class_stands_for_one_that_has_its_methods(trace):
    source = """
    from abc import abstractmethod

    class Coder(nn.Module):
        @abstractmethod
        def squeezed(self, x): ...

    class Halving(Coder):
        def squeezed(self, x):
            return x[..., ::2]

    def compressed(coder: Coder, x):
        return coder.squeezed(torch.relu(x))

    KINDS = [Halving]
    """
    traced = trace(HEAD + _dedented(source).replace("torch.relu(x))", "torch.relu(x)) * len(KINDS)"), "compressed")
    assert guessed(traced) == snapshot(["coder: Halving() · annotation", "x: f32[4, 64] · search"])


LAYERS = """
class Twice(nn.Module):
    def __init__(self, channels, make=nn.Conv2d, squash=None):
        super().__init__()
        self.one, self.two = make(channels, 2 * channels), make(2 * channels, channels)
        self.squash = squash

    def forward(self, x):
        return x + self.two(self.squash(self.one(x)))
"""


def test_a_class_of_layers_that_is_called_with_too_little_is_applied_in_part(trace):
    assert guessed(trace(HEAD + LAYERS, "Twice")) == snapshot(
        [
            "init.channels: 64 · search",
            "init.make: functools.partial(torch.nn.modules.conv.Conv2d, kernel_size=3, padding=1) · search",
            "init.squash: torch.nn.functional.relu · search",
            "x: f32[4, 64, 32, 32] · search",
        ]
    )


def test_a_part_is_made_as_the_whole_makes_it_although_that_does_not_run(trace):
    source = """
    class Whole(nn.Module):
        def __init__(self, width=20):
            super().__init__()
            self.part = Part({"in": width, "out": [3, 5]})

        def forward(self, x):
            raise RuntimeError("not today")

    class Part(nn.Module):
        def __init__(self, plan):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(plan["in"], n) for n in plan["out"])

        def forward(self, x):
            return [layer(x) for layer in self.layers]
    """
    assert guessed(trace(HEAD + _dedented(source), "Part")) == snapshot(
        [
            "init.plan['in']: 20 · call site",
            "init.plan['out'][0]: 3 · call site",
            "init.plan['out'][1]: 5 · call site",
            "x: f32[4, 8, 20] · search",
        ]
    )


def test_a_module_is_known_by_what_is_read_of_it(trace):
    source = """
    class Reader(nn.Module):
        def __init__(self, width=48):
            super().__init__()
            self.lookup = nn.Embedding(100, width)
            self.out = nn.Linear(width, 7)

        def forward(self, rows):
            return self.out(rows)

    class Both(nn.Module):
        def __init__(self, reader):
            super().__init__()
            self.reader = reader

        def forward(self, words):
            return self.reader(self.reader.lookup(words))
    """
    traced = trace(HEAD + _dedented(source), "Both")
    assert guessed(traced)[0] == "init.reader: Reader() · search"


def test_a_mask_is_the_same_for_all_channels(trace):
    source = """
    class Masked(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.first, self.last = nn.Conv1d(width, 12, 1), nn.Conv1d(12, width, 1)

        def forward(self, x, keep_mask):
            x = self.first(x * keep_mask) * keep_mask
            return self.last(x) * keep_mask
    """
    assert guessed(trace(HEAD + _dedented(source), "Masked")) == snapshot(
        ["init.width: 8 · search", "x: f32[4, 8, 64] · search", "keep_mask: f32[4, 1, 64] · search"]
    )


def test_lengths_are_whole_numbers_one_for_each_example(trace):
    source = """
    def valid(rows, row_lengths):
        steps = torch.arange(rows.size(1))
        return rows * (steps[None] < row_lengths[:, None])
    """
    assert guessed(trace(HEAD + _dedented(source), "valid")) == snapshot(
        ["rows: f32[4, 64] · search", "row_lengths: i64[4] · search"]
    )


def test_bounds_of_slices_are_whole_numbers(trace):
    source = """
    def windows(x, starts):
        parts = []
        for i in range(x.size(0)):
            first = starts[i]
            parts.append(x[i, first : first + 3])
        return torch.stack(parts)
    """
    assert guessed(trace(HEAD + _dedented(source), "windows")) == snapshot(
        ["x: f32[4, 64] · search", "starts: (0, 0, 0, 0) · search"]
    )


def test_a_number_that_names_a_device_may_name_another(trace):
    source = """
    class Sampler(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.out = nn.Linear(width, 3)
            self.width = width

        def draw(self, count: int, place: int):
            noise = torch.randn(count, self.width).to(place)
            return self.out(noise)

        def forward(self, x):
            return self.out(x)
    """
    assert guessed(trace(HEAD + _dedented(source), "Sampler.draw")) == snapshot(
        ["init.width: 8 · search", "count: 8 · search", "place: device(type='cpu') · search"]
    )


def test_channels_that_are_cut_off_may_be_those_of_images(trace):
    source = """
    class Cut(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.conv = Own(channels, 4, 3, padding=1)

        def forward(self, x):
            return self.conv(x) + x[:, :4]

    class Own(nn.Conv2d):
        pass
    """
    assert guessed(trace(HEAD + _dedented(source), "Cut")) == snapshot(
        ["init.channels: 64 · search", "x: f32[4, 64, 32, 32] · search"]
    )


def test_what_a_layer_says_of_a_parameter_ends_where_that_is_bound_anew(trace):
    source = """
    class Spoken(nn.Module):
        def __init__(self, words, width):
            super().__init__()
            self.rows, self.conv = nn.Embedding(words, width), nn.Conv1d(width, width, 3)

        def forward(self, x):
            x = self.rows(x).transpose(1, 2)
            return self.conv(x)
    """
    assert guessed(trace(HEAD + _dedented(source), "Spoken")) == snapshot(
        ["init.words: 2 · search", "init.width: 8 · search", "x: i64[4, 8] · search"]
    )


@pytest.mark.parametrize("size", [28, 40])
def test_images_are_as_large_as_a_module_is_made_for(trace, size):
    source = f"""
    class Seen(nn.Module):
        def __init__(self, img_size={size}):
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 4, stride=4)
            self.places = nn.Parameter(torch.zeros(8, img_size // 4, img_size // 4))

        def forward(self, image):
            return self.conv(image) + self.places
    """
    assert guessed(trace(HEAD + _dedented(source), "Seen")) == [f"image: f32[4, 3, {size}, {size}] · search"]


def test_a_tensor_that_is_asked_whether_it_is_true_is_of_one_example(trace):
    """What asks for a value is no mistake that sizes show."""
    source = """
    class Stops(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.gate = nn.Linear(width, 1)

        def forward(self, x):
            if self.gate(x) > 0.5:
                return x
            return 2 * x
    """
    traced = trace(HEAD + _dedented(source), "Stops").trace
    assert [given.spec for given in traced.inputs if given.name == "x"][0].startswith("f32[1, ")
    assert {remark.severity for remark in traced.remarks} == {"information"}


def test_an_argument_by_position_that_is_no_tensor(trace):
    source = """
    def noisy(x, shape):
        return x.sum() + torch.randint(0, 9, shape)
    """
    assert guessed(trace(HEAD + _dedented(source), "noisy")) == snapshot(
        ["x: f32[4, 64] · search", "shape: (1, 1) · search"]
    )


def test_what_may_be_no_tensor_is_no_mistake(trace):
    source = """
    def spread(places, amounts, size, other):
        grid = torch.sparse_coo_tensor(places, amounts, size, torch.float32, "cpu", False)
        return torch.matmul(grid, other)
    """
    assert trace(HEAD + _dedented(source), "spread").failure.severity == "information"


def test_data_that_is_not_here_is_left_out_of_a_file(trace):
    source = """
    KIND = "small"
    if KIND == "small":
        rows = open("rows/that/are/elsewhere.txt").readlines()
        channels = 6
    loader = list(rows)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(channels, 5)

        def forward(self, x):
            return self.up(x)
    """
    traced = trace(HEAD + _dedented(source), "Net")
    assert guessed(traced) == snapshot(["x: f32[4, 8, 6] · search"])
    assert [note.partition(": File")[0] for note in traced.trace.notes] == snapshot(
        ["code that uses missing data was skipped"]
    )


def _dedented(source):
    import textwrap

    return textwrap.dedent(source)


def test_layers_with_names_of_their_own(trace):
    source = """
    class Scales(nn.Module):
        def __init__(self):
            super().__init__()
            self.models = nn.ModuleList()
            for i in range(2):
                self.models.add_module(f"scale_{i}", nn.Conv2d(5, 8, 3))

        def forward(self, x):
            outputs = []
            for model in self.models:
                outputs.append(model(x))
                x = F.avg_pool2d(x, 2)
            return outputs
    """
    assert guessed(trace(HEAD + _dedented(source), "Scales")) == snapshot(["x: f32[4, 5, 64, 64] · search"])


def test_modules_that_a_variable_holds(trace):
    source = """
    class Branch(nn.Module):
        def __init__(self, blocks):
            super().__init__()
            self.blocks = blocks

        def forward(self, x):
            blocks = self.blocks
            y = blocks[0](x)
            for i in range(1, len(blocks)):
                y = blocks[i](y)
            return y * 2
    """
    assert guessed(trace(HEAD + _dedented(source), "Branch")) == snapshot(
        [
            "init.blocks[0]: nn.Identity() · search",
            "init.blocks[1]: nn.Identity() · search",
            "x: f32[4, 8, 64] · search",
        ]
    )


def test_any_arguments_that_are_handed_on_are_no_mistake(trace):
    source = """
    class Source:
        def integers(self, *args, **kwargs):
            return torch.randint(*args, **kwargs)
    """
    failure = trace(HEAD + _dedented(source), "Source.integers").outcome
    assert (failure.kind, failure.severity) == ("inputs", "information")


def test_what_a_search_constructs_is_no_evidence(trace):
    """The method is looked for in runs of others, whose module cannot be made: no attempt to make it is a call."""
    source = """
    kinds = {}


    def normalization(channels):
        return nn.GroupNorm(4, channels)

    class Block(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.norm = normalization(channels)
            self.attention = kinds["flash"](channels)

        def forward(self, x):
            return self._forward(x) + x

        def _forward(self, x):
            b, _, *spatial = x.shape
            return self.attention(self.norm(x).view(b, -1, *spatial))

        def doubled(self, x):
            b, _, *spatial = x.shape
            return self._forward(x).view(b, -1) * 2

    class Net(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.block = Block(channels)

        def forward(self, x):
            return self.block(x)
    """
    failure = trace(HEAD + _dedented(source), "Block._forward").outcome
    assert (failure.severity, failure.inputs[0].spec) == ("information", "64")


STATISTICS = """
class Frozen(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, 16, 3)
        self.mean, self.var = nn.Parameter(torch.zeros(16)), nn.Parameter(torch.ones(16))

    def forward(self, x):
        return F.relu(F.batch_norm(self.conv(x), self.mean, self.var, training=TRAINING))
"""


def test_parameters_of_which_there_is_no_gradient_want_none(trace):
    """The module is one that is never trained, and has its statistics as parameters."""
    traced = trace(HEAD + STATISTICS.replace("TRAINING", "False"), "Frozen")
    note = "traced with parameters that do not require grad: the code does what PyTorch cannot differentiate"
    assert traced.trace.notes[-1] == note
    assert "batch_norm" in traced.graph("forward")


def test_parameters_that_are_changed_in_training_fail(trace):
    failure = trace(HEAD + STATISTICS.replace("TRAINING", "True"), "Frozen").failure
    assert "not differentiable" in failure.message


CHECKED = """
from __future__ import annotations
from typing import TYPE_CHECKING
import torch

if TYPE_CHECKING:
    from nets import Net

def encoded(net: Net, x: torch.Tensor):
    return net.encode(x) * net.factor
"""
NETS = """
from torch import nn
from user import encoded

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor, self.proj = 2, nn.Linear(12, 8)

    def encode(self, x):
        return self.proj(x)
"""


def test_what_only_checkers_import_says_what_annotations_mean(trace):
    traced = trace(CHECKED, "encoded", files={"nets.py": NETS})
    assert guessed(traced) == ["net: Net() · annotation", "x: f32[4, 12] · search"]


LISTS = """
from typing import Any, Dict, List
import copy

def shifted(boxes: torch.Tensor, crop: List[int], whole: List[int]):
    left, top, _, _ = crop
    moved = boxes + torch.tensor([[left, top, left, top]])
    return torch.isclose(moved.float(), torch.as_tensor(whole, dtype=torch.float)[None, :])

def joined(records: List[Dict[str, Any]]):
    return torch.stack([record["image"].flatten(1) for record in records])

def bins(x: torch.Tensor, count: int):
    assert count in {80, 96}, "no other"
    return x[..., None].expand(*x.shape, count) * 2

def guided(model, x: torch.Tensor):
    return model(x, condition=None) * 2

def moved_to(x: torch.Tensor):
    y = copy.deepcopy(x)
    y[:, 1] = 0
    return y * x

@torch.inference_mode()
def sampled(x: torch.Tensor):
    return x.cumsum(-1)
"""


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        pytest.param("shifted", ["f32[16, 4]", *["2"] * 8], id="lists are as long as they are unpacked"),
        pytest.param(
            "joined", ["f32[4, 3, 64, 64]", "f32[4, 3, 64, 64]"], id="dictionaries of tensors in an annotated list"
        ),
        pytest.param("bins", ["f32[4, 64]", "80"], id="one of the numbers that it is compared with"),
        pytest.param("guided", ["lambda x, *others, **named: x", "f32[4, 64]"], id="what is called with keywords"),
        pytest.param("moved_to", ["f32[4, 64]"], id="a copy of a tensor"),
        pytest.param("sampled", ["f32[4, 64]"], id="inference mode"),
    ],
)
def test_lists_numbers_functions_and_copies(name: str, inputs: list[str], trace):
    assert [i.spec for i in trace(HEAD + LISTS, name).trace.inputs] == inputs


def test_a_constructors_none_that_is_computed_with_is_a_number(trace):
    source = """
class Kept(nn.Module):
    def __init__(self, drop_prob=None):
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x):
        return x * (1 - self.drop_prob)
"""
    assert guessed(trace(HEAD + source, "Kept")) == ["init.drop_prob: 0.1 · search", "x: f32[4, 8, 64] · search"]


def test_what_a_function_of_the_program_needs_counts_where_a_parameter_is_handed_on(trace):
    source = """
def halves(pair):
    a, b = pair["images"].chunk(2, 1)
    return a * pair["scale"]

def whole(pair, x: torch.Tensor):
    return halves(pair) + x.mean()
"""
    inputs = guessed(trace(HEAD + source, "whole"))
    assert [i.partition(":")[0] for i in inputs] == ["pair['images']", "pair['scale']", "x"]


def test_numbers_that_a_part_of_a_part_leaves_open(trace):
    source = """
from dataclasses import dataclass

@dataclass
class Sizes:
    width: int = 8
    words: int = -1

class Net(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.words = nn.Embedding(sizes.words, sizes.width)

    def forward(self, tokens):
        return self.words(tokens)

class Sampler:
    def __init__(self, net: Net):
        self.net = net

    def sample(self, tokens: torch.Tensor):
        return self.net(tokens).argmax(-1)
"""
    assert "net: Net()" in str(guessed(trace(HEAD + source, "Sampler.sample")))


SAID = """
class Layers(nn.Module):
    def __init__(self, dim, depth, causal=False):
        super().__init__()
        self.dim = dim
        self.layers = nn.ModuleList([nn.Linear(dim, dim) for _ in range(depth)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

class Encoder(Layers):
    def __init__(self, **kwargs):
        assert "causal" not in kwargs
        super().__init__(causal=False, **kwargs)

class Wrapper(nn.Module):
    def __init__(self, count, layers):
        super().__init__()
        assert isinstance(layers, Layers), "layers are an Encoder or a Decoder"
        self.words, self.layers = nn.Embedding(count, layers.dim), layers

    def forward(self, tokens):
        return self.layers(self.words(tokens))

class Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run, count, *args):
        ctx.run = run
        return ctx.run(*args[:count]) * 1

    @staticmethod
    def backward(ctx, grad):
        return None, None, grad

def replayed(run, args, flag=True):
    return Again.apply(run, len(args), *args) if flag else run(*args)

def refined(x: torch.Tensor, fn, count=2):
    signal = fn.inverse(x, x.sin()).squeeze(1)
    for _ in range(count):
        signal = fn.inverse(signal, signal.sin())
    return signal

def hooked(module):
    module.is_hooked = True
    for p in module.parameters():
        p.register_hook(lambda grad: grad * 2)
    return torch.stack([p.sum() for p in module.parameters()])
"""


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        pytest.param("Encoder", ["init.dim: 64", "init.depth: 2", "x: f32[4, 8, 64]"], id="what a base class requires"),
        pytest.param("Wrapper", ["init.count: 8", "init.layers: Layers()", "tokens: i64[4, 8]"], id="an assertion"),
        pytest.param("hooked", ["module: nn.Linear(64, 64)"], id="a module that gets an attribute"),
    ],
)
def test_what_is_said_of_a_parameter_elsewhere(name: str, inputs: list[str], trace):
    assert [i.partition(" · ")[0] for i in guessed(trace(HEAD + SAID, name))] == inputs


def test_methods_of_what_nobody_knows_can_be_called(trace):
    assert trace(HEAD + SAID, "refined").inputs()


def test_what_is_called_with_any_arguments(trace):
    assert "run: lambda x, *others, **named: x · search" in guessed(trace(HEAD + SAID, "replayed"))


def test_a_method_that_says_little_is_called_as_its_class_calls_it(trace):
    source = """
class Grid(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj, self.table = nn.Conv2d(3, 16, 4, 4), nn.Parameter(torch.zeros(1, 16, 8, 8))

    def placed(self, x, w, h):
        return x + nn.functional.interpolate(self.table, scale_factor=(w / 32, h / 32)).flatten(2)

    def forward(self, x):
        b, c, w, h = x.shape
        return self.placed(self.proj(x).flatten(2), w, h)
"""
    assert guessed(trace(HEAD + source, "Grid.placed"))[1:] == ["w: 64 · call site", "h: 64 · call site"]


def test_weights_of_classes_are_one_for_each(trace):
    source = """
def loss(scores, labels, weight, extra):
    return F.nll_loss(scores, labels, weight=weight) + extra.mean(dim=(1, 2)).sum()
"""
    inputs = dict(line.partition(" · ")[0].split(": ") for line in guessed(trace(HEAD + source, "loss")))
    assert inputs["scores"] == "f32[4, 64]" and inputs["weight"] == "f32[64]" and inputs["labels"] == "i64[4]"
