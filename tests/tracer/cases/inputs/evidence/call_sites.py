# Inputs from calls in the file and in its tests: what the call needs is run, and nothing else.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === A call at module level
def attention(q, k, v, causal=False):
    return torch.softmax(q @ k.transpose(-2, -1), -1) @ v

q = torch.randn(2, 4, 8, 16)
out = attention(q, q, v=torch.randn(2, 4, 8, 32).requires_grad_(), causal=True)
#: attention(q=f32[2, 4, 8, 16], k=f32[2, 4, 8, 16], v=f32[2, 4, 8, 32], causal=True · call site `out = attention(q, q,
#:   v=torch.randn(2, 4, 8, 32).requires_grad_(), causal=True)`) -> f32[2, 4, 8, 32]

# === A site that does not run is passed over
def attention(q, k, v, causal=False):
    return torch.softmax(q @ k.transpose(-2, -1), -1) @ v

def test_first():
    attention(torch.randn(2, 3), torch.randn(missing), torch.randn(2, 3))

def test_second():
    attention(torch.randn(5, 3), torch.randn(7, 3), torch.randn(7, 2))
#: attention(q=f32[5, 3], k=f32[7, 3], v=f32[7, 2] · call site `attention(torch.randn(5, 3), torch.randn(7, 3),
#:   torch.randn(7, 2))`; causal=False · default) -> f32[5, 2]

# === A call that fails is an error where it fails
def attention(q, k, v, causal=False):
    return torch.softmax(q @ k.transpose(-2, -1), -1) @ v
    #                        ^^^^^^^^^^^ error[error]: AttributeError: 'int' object has no attribute 'transpose'.

def demo():
    attention(1, 2, 3)
#: attention(q=1, k=2, v=3 · call site `attention(1, 2, 3)`; causal=False · default)

# === A site that never comes to the call
def attention(q, k, v, causal=False):
    return torch.softmax(q @ k.transpose(-2, -1), -1) @ v

def size():
    while True:
        try:
            pass
        except Exception:
            pass

def demo():
    attention(torch.randn(size(), 3), torch.randn(7, 3), torch.randn(7, 2))
#: attention(q=f32[4, 8, 12, 64] · search; k=f32[4, 8, 24, 64], v=f32[4, 8, 24, 96] · search: sizes that fit;
#:   causal=False · default) -> f32[4, 8, 12, 96]
#:   note: user.py was not followed to its end: it takes too long

# === What starts programs is not run
def attention(q, k, v, causal=False):
    return torch.softmax(q @ k.transpose(-2, -1), -1) @ v

import os

def demo():
    attention(torch.randn(3 + os.system("true"), 3), torch.randn(7, 3), torch.randn(7, 2))
#: attention(q=f32[4, 8, 12, 3] · search: sizes that fit; k=f32[7, 3], v=f32[7, 2] · call site `attention(torch.randn(3
#:   + os.system("true"), 3), torch.randn(7, 3), torch.randn(7, 2))`; causal=False · default) -> f32[4, 8, 12, 2]

# === What an annotation spells out wins
from typing import Annotated

def scaled(x: Annotated[Tensor, "3 5"], w):
    return x @ w

def test_scaled():
    scaled(torch.randn(2, 5), torch.randn(5, 7))
#: scaled(x=f32[3, 5] · annotation; w=f32[5, 7] · call site `scaled(torch.randn(2, 5), torch.randn(5, 7))`) -> f32[3, 7]

# === A test that imports the module in its function
def attention(q, k, v, causal=False):
    return torch.softmax(q @ k.transpose(-2, -1), -1) @ v
# --- test/user_test.py
import torch

def test_attention():
    import user as module
    out = [module.attention(x, x, x) for x in torch.randn(3, 6, 2)]
#: attention(q=f32[6, 2], k=f32[6, 2], v=f32[6, 2] · call site `out = [module.attention(x, x, x) for x in torch.randn(3,
#:   6, 2)]`; causal=False · default) -> f32[6, 2]

# === What a program passes is known and what is searched for is guessed
def f(x, scale):
    return x * scale.unsqueeze(0)

def g(x):
    return inner(x.softmax(-1))

def inner(y):
    return y.exp()

f(torch.zeros(3, 7), torch.ones(7))
#: f(x=f32[3, 7], scale=f32[7] · call site `f(torch.zeros(3, 7), torch.ones(7))`) -> f32[3, 7]
#: g(x=f32[4, 64] · search) -> f32[4, 64]

# === An object is what it was before the constructor changed it
class Settings:
    def __init__(self):
        self.kind, self.width = "small", None

class Model(nn.Module):
    def __init__(self, settings):
        super().__init__()
        assert (settings.kind is None) != (settings.width is None)
        settings.width = 16 if settings.kind == "small" else 32
        self.layer = nn.Linear(settings.width, 4)

    def forward(self, x):
        return self.layer(x)

def test_model():
    Model(Settings())(torch.zeros(3, 16))
#: Model(init.settings=Settings(…), x=f32[3, 16] · call site `Model(Settings())(torch.zeros(3, 16))`) -> f32[3, 4]

# === An object that a call passes counts beside a default of none
from collections import namedtuple

Options = namedtuple("Options", "width classes")

class Net(nn.Module):
    def __init__(self, options=None):
        super().__init__()
        self.fc = nn.Linear(options.width, options.classes)

    def forward(self, x):
        return self.fc(x)

    @classmethod
    def named(cls, name):
        return cls(Options(width=24, classes=3))

net = Net.named("small")
net(torch.randn(2, 24))
#: Net(init.options=Options(width=24, classes=3) · call site `return cls(Options(width=24, classes=3))`; x=f32[2, 24] ·
#:   call site `net(torch.randn(2, 24))`) -> f32[2, 3]
