"""Everything that can be called is a target: nested functions, closures, autograd functions, what decorators wrap."""

from inline_snapshot import snapshot

SOURCE = """
import functools
import torch
from torch import nn, Tensor

def make_norm(eps: float):
    scale = 2.0
    def norm(x):
        return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * scale
    return norm

def apply_twice(x: Tensor, w: Tensor):
    def step(h, i):
        return torch.tanh(h @ w) * i
    for i in range(2):
        x = step(x, i + 1)
    return x

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
    def forward(self, x):
        def inner(y):
            return torch.relu(self.fc(y))
        return inner(x) + x

class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v, alpha=2.0):
        ctx.save_for_backward(v)
        return (v > 0).to(v.dtype)
    @staticmethod
    def backward(ctx, g):
        (v,) = ctx.saved_tensors
        return g / (1 + v.abs()) ** 2, None

@torch.compile(dynamic=True)
def compiled(x: Tensor, w: Tensor):
    return torch.softmax(x @ w, -1)

@torch.jit.script
def scripted(x: Tensor, n: int):
    for i in range(n):
        x = torch.relu(x) + i
    return x

def checked(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs)
    return wrapper

@checked
def dec(x: Tensor, *, bias: Tensor | None = None, scale=1.0):
    y = x * scale
    return y if bias is None else y + bias

def cat_all(*tensors, dim=-1):
    return torch.cat([t.relu() for t in tensors], dim=dim)

def kw(**inputs):
    return torch.stack(list(inputs.values()))

def apply_fn(fn, x: Tensor):
    return fn(x).sum()

def with_module(module: nn.Module, x: Tensor):
    return module(x) * 2

class Ops:
    @staticmethod
    def gelu(x: Tensor): return 0.5 * x * (1 + torch.erf(x / 2 ** 0.5))
    @classmethod
    def double(cls, x: Tensor): return cls.gelu(x) * 2

TABLE = torch.randn(64, 32)
layer = nn.Linear(64, 8)

def uses_globals(x: Tensor):
    return layer(x) + (x @ TABLE).sum()

class Plain:
    def __init__(self, dim: int = 16):
        self.w = torch.randn(dim, dim, requires_grad=True)
    def project(self, x: Tensor):
        return x @ self.w

def eager_attention(module: nn.Module, q: Tensor, k: Tensor, v: Tensor):
    s = torch.matmul(q, k.transpose(2, 3)) * module.scaling
    return torch.matmul(s.softmax(-1), v) @ module.out.weight

class Attn(nn.Module):
    def __init__(self, dim=64, heads=4):
        super().__init__()
        self.heads = heads
        self.scaling = (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim // heads, dim // heads)
    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return eager_attention(self, q, k, v)
"""


def summary(traced):
    """Each input with its source, and the operations of each stage."""
    stages = {s.name: s.ops for s in traced.outcome.stages}
    return traced.inputs(), stages


def test_a_function_that_another_one_returns(trace):
    assert summary(trace(SOURCE, "make_norm.norm")) == snapshot(
        (["x: f32[4, 64] · search"], {"joint": 23, "forward": 6, "backward": 17})
    )


def test_a_closure_over_a_tensor(trace):
    assert summary(trace(SOURCE, "apply_twice.step")) == snapshot(
        (["h: f32[4, 64] · call site", "i: 1 · call site"], {"joint": 11, "forward": 6, "backward": 5})
    )


def test_a_closure_over_a_module(trace):
    assert summary(trace(SOURCE, "Net.forward.inner")) == snapshot(
        (["y: f32[4, 12, 8] · call site"], {"joint": 18, "forward": 7, "backward": 12})
    )


def test_an_autograd_function(trace):
    assert summary(trace(SOURCE, "Spike")) == snapshot(
        (["v: f32[4, 64] · search", "alpha: 2.0 · default"], {"joint": 6, "forward": 2, "backward": 4})
    )


def test_a_compiled_function(trace):
    assert summary(trace(SOURCE, "compiled")) == snapshot(
        (["x: f32[4, 64] · search", "w: f32[64, 32] · search"], {"joint": 9, "forward": 6, "backward": 3})
    )


def test_a_scripted_function(trace):
    assert summary(trace(SOURCE, "scripted")) == snapshot(
        (["x: f32[4, 64] · search", "n: 2 · search"], {"joint": 10, "forward": 8, "backward": 2})
    )


def test_a_wrapped_function_with_keyword_only_parameters(trace):
    assert summary(trace(SOURCE, "dec")) == snapshot(
        (
            ["x: f32[4, 64] · search", "bias: None · default", "scale: 1.0 · default"],
            {"joint": 2, "forward": 1, "backward": 1},
        )
    )


def test_any_number_of_tensors(trace):
    assert summary(trace(SOURCE, "cat_all")) == snapshot(
        (
            ["tensors[0]: f32[4, 64] · search", "tensors[1]: f32[4, 64] · search", "dim: -1 · default"],
            {"joint": 11, "forward": 7, "backward": 4},
        )
    )


def test_a_function_that_takes_a_function(trace):
    assert summary(trace(SOURCE, "apply_fn")) == snapshot(
        (
            ["fn: Net() · search", "x: f32[4, 8] · search"],
            {"joint": 18, "forward": 7, "backward": 12},
        )
    )


def test_a_function_that_takes_any_module(trace):
    assert summary(trace(SOURCE, "with_module")) == snapshot(
        (["module: Net() · search", "x: f32[4, 8] · search"], {"joint": 18, "forward": 7, "backward": 12})
    )


def test_a_function_that_takes_a_module_of_the_file(trace):
    assert summary(trace(SOURCE, "eager_attention")) == snapshot(
        (
            [
                "module: Attn(…) · call site",
                "q: f32[4, 4, 8, 16](1536, 16, 192, 1) · call site",
                "k: f32[4, 4, 8, 16](1536, 16, 192, 1) · call site",
                "v: f32[4, 4, 8, 16](1536, 16, 192, 1) · call site",
            ],
            {"joint": 46, "forward": 25, "backward": 23},
        )
    )


def test_tensors_and_modules_of_the_file(trace):
    assert summary(trace(SOURCE, "uses_globals")) == snapshot(
        (["x: f32[4, 64] · search"], {"joint": 18, "forward": 5, "backward": 14})
    )


def test_a_method_of_an_object_that_is_no_module(trace):
    assert summary(trace(SOURCE, "Plain.project")) == snapshot(
        (["x: f32[4, 16] · search"], {"joint": 5, "forward": 2, "backward": 3})
    )


def test_a_static_method(trace):
    assert summary(trace(SOURCE, "Ops.gelu")) == snapshot(
        (["x: f32[4, 64] · search"], {"joint": 15, "forward": 5, "backward": 14})
    )


def test_a_class_method(trace):
    assert summary(trace(SOURCE, "Ops.double")) == snapshot(
        (["x: f32[4, 64] · search"], {"joint": 17, "forward": 6, "backward": 15})
    )


ASKING = """
import torch

class Scaled(torch.autograd.Function):
    @classmethod
    def forward(cls, ctx, x, factor=2.0, dim=-1):
        ctx.save_for_backward(y := torch.softmax(x * factor, dim))
        return y
    @classmethod
    def backward(cls, ctx, grad):
        (y,) = ctx.saved_tensors
        return grad * y, grad.sum() if ctx.needs_input_grad[1] else None, None
"""


def test_a_backward_that_asks_what_its_arguments_need(trace):
    inputs, stages = summary(trace(ASKING, "Scaled"))
    assert inputs == ["x: f32[4, 64] · search", "factor: 2.0 · default", "dim: -1 · default"]
    assert "backward" in stages
