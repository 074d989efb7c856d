# Inputs without configuration: what is written down first, search last.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === Unpacking a shape fixes the rank
import math

def f(x):
    b, t, h, d = x.shape
    return x.transpose(1, 2).reshape(b, h, t * d)
#: f(x=f32[4, 8, 12, 64] · search) -> f32[4, 12, 512]

# === Sizes are tied where the code ties them
import math

def attention(q, k, v):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    return scores.softmax(-1) @ v
#: attention(q=f32[4, 8, 12, 64] · search; k=f32[4, 8, 24, 64], v=f32[4, 8, 24, 96] · search: sizes that fit) -> f32[4,
#:   8, 12, 96]

# === Products heads and fused projections
import math

def mha(x, w_qkv, w_out, n_heads: int):
    b, t, d = x.shape
    q, k, v = (x @ w_qkv).view(b, t, 3, n_heads, d // n_heads).permute(2, 0, 3, 1, 4)
    y = F.scaled_dot_product_attention(q, k, v)
    return y.transpose(1, 2).reshape(b, t, d) @ w_out
#: mha(x=f32[4, 8, 64] · search; w_qkv=f32[64, 192], w_out=f32[64, 96], n_heads=4 · search: sizes that fit) -> f32[4, 8,
#:   96]

# === Indices labels and masks get their dtypes
import math

def f(ids, table, labels, mask):
    logits = F.embedding(ids, table).masked_fill(mask, 0.0)
    return F.cross_entropy(logits.flatten(0, 1), labels)
#: f(ids=i64[4, 8], table=f32[12, 64] · search; labels=i64[32], mask=b8[8, 64] · search: sizes that fit) -> f32[]

# === Modules construct from defaults and guessed sizes
import math

class Block(nn.Module):
    def __init__(self, dim, n_heads, dropout=0.1):
        super().__init__()
        assert dim % n_heads == 0
        self.attn = nn.MultiheadAttention(dim, n_heads, dropout, batch_first=True)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x, attn_mask=None):
        h = self.norm(x)
        return x + self.attn(h, h, h, attn_mask=attn_mask)[0]
#: Block(init.dim=64, init.n_heads=4, x=f32[4, 8, 64] · search; attn_mask=None · default) -> f32[4, 8, 64]

# === An image network gets images
import math

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3)
        self.fc = nn.Linear(16, 10)

    def forward(self, img):
        return self.fc(F.relu(self.conv(img)).mean((2, 3)))
#: Net(img=f32[4, 3, 64, 64] · search) -> f32[4, 10]

# === Get inputs and get init inputs
import math

class Model(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.norm = nn.LayerNorm(features, eps=eps)

    def forward(self, x, scale):
        return self.norm(x) * scale

def get_inputs():
    return [torch.rand(16, 48), 2.0]

def get_init_inputs():
    return [48, 1e-3]
#: Model(init.features=48, init.eps=0.001 · convention: get_init_inputs(); x=f32[16, 48], scale=2.0 · convention:
#:   get_inputs()) -> f32[16, 48]

# === A comment wins and the rest is searched
import math

# fx: x=f32[3, 5]
def f(x, w):
    return x @ w
#: f(w=f32[5, 64] · search: sizes that fit) -> f32[3, 64]

# === A comment with constructor arguments expressions and strides
import math

# fx: init(act=nn.GELU()), x=f16[4, 8](1, 4)
class Act(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.act = act

    def forward(self, x):
        return self.act(x)
#: Act() -> f16[4, 8](1, 4)

# === A default stays as it is where the code runs with it
import math

def f(x, bias=None, scale: float = 2.0):
    y = torch.relu(x) * scale
    return y if bias is None else y + bias
#: f(x=f32[4, 64] · search; bias=None, scale=2.0 · default) -> f32[4, 64]

# === None where a tensor is needed is repaired
import math

def f(x: Tensor, pair: tuple[Tensor, Tensor] | None = None):
    cos, sin = pair
    return x * cos + x * sin
#: f(x=f32[4, 64] · search; pair[0]=f32[4, 64], pair[1]=f32[4, 64] · search: sizes that fit) -> f32[4, 64]

# === Enums literals dtypes and dataclass configs
import math

from dataclasses import dataclass
from typing import Literal

@dataclass
class Config:
    dim: int = 24
    bias: bool = False

class Net(nn.Module):
    def __init__(self, config: Config, mode: Literal["mean", "sum"], dtype: torch.dtype):
        super().__init__()
        self.fc = nn.Linear(config.dim, config.dim, config.bias, dtype=dtype)
        self.mode = mode

    def forward(self, x):
        return getattr(self.fc(x), self.mode)()
#: Net(init.config=Config(), init.mode='mean' · annotation; init.dtype=torch.float32, x=f32[4, 8, 24] · search) -> f32[]

# === States and masks have the shapes that layers take
class Stateful(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.words, self.rnn, self.head = nn.Embedding(words, 32), nn.LSTM(32, 48, 2), nn.Linear(48, words)

    def forward(self, ids, state):
        y, state = self.rnn(self.words(ids).transpose(0, 1), state)
        return self.head(y.transpose(0, 1).reshape(-1, 48)), state

class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.norm = nn.MultiheadAttention(64, 4, batch_first=True), nn.LayerNorm(64)

    def forward(self, x, causal, padding):
        y, _ = self.attention(x, x, x, attn_mask=causal, key_padding_mask=padding)
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[pytorch-warning]:
        #  PyTorch warns: Support for mismatched key_padding_mask and attn_mask is deprecated. Use same type for both
        #  instead.
        return self.norm(x + y)
#: Stateful(init.words=2, ids=i64[4, 8] · search; state[0]=f32[2, 4, 48], state[1]=f32[2, 4, 48] · search: sizes that
#:   fit) -> f32[32, 2], f32[2, 4, 48], f32[2, 4, 48]
#:   note: recurrent layers are shown as the single operation that cuDNN runs (its reserve space is not counted as
#:     saved); without cuDNN, PyTorch loops over the steps
#: Masked(x=f32[4, 8, 64] · search; causal=f32[8, 8], padding=b8[4, 8] · search: sizes that fit) -> f32[4, 8, 64]

# === The annotation of a number describes no tensor of its name
class Melody(nn.Module):
    def __init__(self, notes: int, width: int = 8):
        super().__init__()
        self.embed = nn.Embedding(notes, width)

    def forward(self, notes):
        return self.embed(notes).view(notes.size(0), -1)
#: Melody(init.notes=2, notes=i64[4, 8] · search) -> f32[4, 64]
