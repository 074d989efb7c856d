"""Functions in forms other than a plain `def`: deeply nested, lambdas, partial applications, generators, coroutines."""

from inline_snapshot import snapshot

SOURCE = """
import asyncio
import functools
import torch
from torch import nn, Tensor

def scaled(scale):
    def middle(fn):
        def inner(x):
            return fn(x.softmax(-1)) * scale
        return inner
    return middle

def outer(x: Tensor, w: Tensor):
    def middle(h):
        def inner(y, n):
            return torch.tanh(y @ w) * n
        return inner(h, 2) + h
    return middle(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
    def forward(self, x):
        def first(y):
            def second(z):
                return torch.relu(self.fc(z))
            return second(y)
        return first(x)

gelu = lambda x: 0.5 * x * (1 + torch.erf(x / 2 ** 0.5))

SHIFT = torch.ones(64)

def power(x: Tensor, n: int, shift: Tensor | None = None):
    y = x.relu() ** n + SHIFT
    return y if shift is None else y + shift

cube = functools.partial(power, n=3)
shifted = functools.partial(power, n=2, shift=torch.zeros(64))

doubled = functools.partial(power, n=2)

def uses():
    return doubled(power(torch.ones(3, 1), 7))

def chunks(x: Tensor, n: int = 3):
    for i in range(n):
        h = x * i
        yield h.relu()

def forever(x: Tensor):
    while True:
        x = x.relu()
        yield x

async def attend(q: Tensor, k: Tensor):
    return q @ k.transpose(-1, -2)

async def attention(q: Tensor, k: Tensor):
    await asyncio.sleep(0)
    return (await attend(q, k)).softmax(-1)

async def late(x: Tensor):
    y = x.relu()
    await asyncio.sleep(1)
    return y

class Asked:
    def __await__(self):
        yield self

async def waiting(x: Tensor):
    y = x.relu()
    await Asked()
    return y

async def stream(x: Tensor):
    yield x.relu()
    yield x.tanh()
"""


def summary(traced):
    """Each input with its source, the outputs, and the operations of each stage."""
    return traced.inputs(), list(traced.trace.outputs), {s.name: s.ops for s in traced.trace.stages}


def parameters(traced, start):
    """The variables that have a value where the line that begins with `start` defines a function."""
    lines = traced.source.splitlines()
    return {(v.name, v.spec) for v in traced.trace.values if v.name and lines[v.span.line - 1].startswith(start)}


def failed(traced):
    """Why there is no trace, and where."""
    return traced.failure.kind, traced.failure.message, traced.at(traced.failure.span)


def test_a_function_two_levels_down_as_the_outer_one_calls_it(trace):
    assert summary(trace(SOURCE, "outer.middle.inner")) == snapshot(
        (["y: f32[4, 64] · call site", "n: 2 · call site"], ["f32[4, 64]"], {"joint": 11, "forward": 6, "backward": 5})
    )
    assert summary(trace(SOURCE, "outer.middle")) == snapshot(
        (["h: f32[4, 64] · call site"], ["f32[4, 64]"], {"joint": 13, "forward": 7, "backward": 6})
    )


def test_a_function_two_levels_down_that_exists_once_the_middle_one_is_called(trace):
    assert summary(trace(SOURCE, "scaled.middle.inner")) == snapshot(
        (["x: f32[4, 64] · search"], ["f32[4, 64]"], {"joint": 10, "forward": 7, "backward": 3})
    )


def test_a_function_two_levels_down_in_a_module(trace):
    assert summary(trace(SOURCE, "Net.forward.first.second")) == snapshot(
        (["z: f32[4, 12, 8] · call site"], ["f32[4, 12, 8]"], {"joint": 18, "forward": 7, "backward": 12})
    )


def test_a_lambda(trace):
    assert summary(trace(SOURCE, "gelu")) == snapshot(
        (["x: f32[4, 64] · search"], ["f32[4, 64]"], {"joint": 15, "forward": 5, "backward": 14})
    )


def test_a_partial_application(trace):
    assert summary(trace(SOURCE, "cube")) == snapshot(
        (
            ["x: f32[4, 64] · search", "n: 3 · default", "shift: None · default"],
            ["f32[4, 64]"],
            {"joint": 9, "forward": 3, "backward": 6},
        )
    )


def test_a_partial_application_to_a_tensor(trace):
    traced = trace(SOURCE, "shifted")
    assert traced.inputs() == snapshot(["x: f32[4, 64] · search", "n: 2 · default", "shift: f32[64] · default"])
    assert [n.name for n in traced.stage("forward").nodes if n.op == "placeholder"] == snapshot(["SHIFT", "x", "shift"])


def test_a_partial_application_has_inputs_of_its_own(trace):
    assert trace(SOURCE, "doubled").inputs() == snapshot(
        ["x: f32[4, 64] · search", "n: 2 · default", "shift: None · default"]
    )
    assert trace(SOURCE, "power").inputs() == snapshot(
        ["x: f32[3, 1] · call site", "n: 7 · call site", "shift: None · default"]
    )


def test_what_a_generator_yields(trace):
    assert summary(trace(SOURCE, "chunks")) == snapshot(
        (
            ["x: f32[4, 64] · search", "n: 3 · default"],
            ["f32[4, 64]", "f32[4, 64]", "f32[4, 64]"],
            {"joint": 20, "forward": 12, "backward": 8},
        )
    )


def test_parameters_of_a_generator_and_of_a_lambda(trace):
    assert parameters(trace(SOURCE, "chunks"), "def chunks") == snapshot({("x", "f32[4, 64]"), ("n", "3")})
    assert parameters(trace(SOURCE, "gelu"), "gelu = ") == snapshot({("x", "f32[4, 64]")})


def test_a_generator_without_end(trace):
    assert failed(trace(SOURCE, "forever")) == snapshot(
        ("unsupported", "it has yielded 1000 values here and does not end", "yield x")
    )


def test_what_awaiting_gives(trace):
    assert summary(trace(SOURCE, "attention")) == snapshot(
        (
            ["q: f32[4, 64] · search", "k: f32[8, 64] · search"],
            ["f32[4, 8]"],
            {"joint": 12, "forward": 6, "backward": 6},
        )
    )


def test_what_an_asynchronous_generator_yields(trace):
    assert summary(trace(SOURCE, "stream")) == snapshot(
        (["x: f32[4, 64] · search"], ["f32[4, 64]", "f32[4, 64]"], {"joint": 9, "forward": 6, "backward": 3})
    )


def test_a_coroutine_that_waits(trace):
    assert failed(trace(SOURCE, "late")) == snapshot(
        ("unsupported", "it needs a running event loop here, and a trace has none", "await asyncio.sleep(1)")
    )
    assert failed(trace(SOURCE, "waiting")) == snapshot(
        ("unsupported", "it awaits something external here, and a trace has no event loop", "yield self")
    )


def test_what_is_nested_too_deep_to_be_shown_is_not_shown_as_empty(trace):
    source = (
        "import torch\ndef f(x: torch.Tensor):\n    y = {'a': [(x, (x, [x]), [], {'b': x})]}\n    return x + 1, y\n"
    )
    (shown,) = [v.spec for v in trace(source, comment="x=f32[4]").trace.values if v.name == "y"]
    assert shown == "{'a': [(f32[4], (...), [], {...})]}"
