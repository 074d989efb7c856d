# Inputs of code as people write it: configurations, windows, checks, documented shapes.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === Inputs of code as people write it
import math
from dataclasses import dataclass
from types import SimpleNamespace

class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        assert config.n_embd % config.n_head == 0
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.attn_dropout = nn.Dropout(config.dropout)
        self.n_head = config.n_head
        self.n_embd = config.n_embd
        self.register_buffer("mask", torch.tril(torch.ones(config.block_size, config.block_size))[None, None])
    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
        y = self.attn_dropout(F.softmax(att, dim=-1)) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))

class WindowAttention(nn.Module):
    def __init__(self, dim, window_size, num_heads, qkv_bias=True):
        super().__init__()
        self.window_size = window_size
        self.num_heads = num_heads
        self.table = nn.Parameter(torch.zeros((2 * window_size[0] - 1) * (2 * window_size[1] - 1), num_heads))
       #^^^^^^^^^^ information[no-gradient]: `self.table` gets no gradient: the class does not use it.
        self.qkv = nn.Linear(dim, dim * 3, bias=qkv_bias)
    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        return qkv[0] @ qkv[1].transpose(-2, -1)

class PatchMerging(nn.Module):
    def __init__(self, input_resolution, dim, norm_layer):
        super().__init__()
        self.input_resolution = input_resolution
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)
        self.norm = norm_layer(4 * dim)
    def forward(self, x):
        H, W = self.input_resolution
        B, L, C = x.shape
        assert L == H * W, "input feature has wrong size"
        x = x.view(B, H, W, C)
        x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
        return self.reduction(self.norm(x.view(B, -1, 4 * C)))

class Cfg(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.fc = nn.Linear(cfg["dim"], cfg["hidden"])
        self.act = cfg.get("act", "relu")
    def forward(self, x):
        return getattr(F, self.act)(self.fc(x))

def window_partition(x, window_size):
    B, H, W, C = x.shape
    x = x.view(B, H // window_size, window_size, W // window_size, window_size, C)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, window_size, window_size, C)

def window_reverse(windows, window_size, H, W):
    B = int(windows.shape[0] / (H * W / window_size / window_size))
    x = windows.view(B, H // window_size, W // window_size, window_size, window_size, -1)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(B, H, W, -1)

def loss_fn(pred, target, reduction="mean", weight=None):
    loss = F.cross_entropy(pred, target, weight=weight, reduction="none")
    if reduction == "mean": return loss.mean()
    return loss.sum()
def mode_fn(x: torch.Tensor, mode):
    if mode in ("max", "avg"):
        return x.amax(-1) if mode == "max" else x.mean(-1)
    raise ValueError(f"unknown mode {mode}")

def to_gray(image):
    '''Convert.

    Args:
        image: with shape (*, 3, H, W).
        weights: of shape (3,)
    '''
    if len(image.shape) < 3 or image.shape[-3] != 3:
        raise ValueError(f"Input size must have a shape of (*, 3, H, W). Got {image.shape}")
    return image.mean(-3)

def check(x):
    if x.shape[-1] != 3:
        raise ValueError("not a point")

def norm_of(points: torch.Tensor):
    check(points)
    return points.norm(dim=-1)

def same_shape(pred, target):
    if pred.shape != target.shape:
        raise ValueError(f"Expected target size {pred.shape}, got {target.shape}")
    return (pred - target).abs().mean()

def blur(x: torch.Tensor, kernel_size: int):
    if kernel_size % 2 == 0:
        raise ValueError("the kernel size must be odd")
    return F.avg_pool1d(x, kernel_size, stride=1)

def one_example(x: torch.Tensor):
    if x.shape[0] != 1 and x.dim() == 3:
        raise ValueError("Cannot handle batch sizes > 1")
    return x.softmax(-1)

def lies(states: tuple[torch.Tensor] | None):
    return torch.relu(states).sum(-1)

class Flagged(nn.Module):
    def __init__(self, dim: int, scale: bool = False):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
    def forward(self, x):
        return self.fc(x)

class FeedForward(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.up = nn.Linear(args.dim, args.hidden_dim, bias=False)
        self.scale = args["scale"]
    def forward(self, x):
        return F.silu(self.up(x)) * self.scale
#: CausalSelfAttention(init.config=SimpleNamespace(bias=False, block_size=64, dropout=0.1, n_embd=64, n_head=4),
#:   x=f32[4, 8, 64] · search) -> f32[4, 8, 64]
#: Cfg(init.cfg={'dim': 64, 'hidden': 64}, x=f32[4, 8, 64] · search) -> f32[4, 8, 64]
#: WindowAttention(init.dim=64, init.window_size=(4, 4), init.num_heads=4, x=f32[4, 8, 64] · search) -> f32[4, 4, 8, 8]
#: PatchMerging(init.input_resolution=(32, 32), init.dim=64, init.norm_layer=torch.nn.modules.normalization.LayerNorm ·
#:   search; x=f32[4, 1024, 64] · search: sizes that fit) -> f32[4, 256, 128]
#: window_partition(x=f32[4, 8, 12, 64], window_size=4 · search) -> f32[24, 4, 4, 64]
#: window_reverse(windows=f32[4, 64], window_size=4, H=8, W=8 · search) -> f32[1, 8, 8, 4]
#: mode_fn(x=f32[4, 64], mode='max' · search) -> f32[4]
#: to_gray(image=f32[4, 3, 12, 64] · search: shape from the docstring) -> f32[4, 12, 64]
#: norm_of(points=f32[4, 3] · search) -> f32[4]
#: same_shape(pred=f32[4, 64] · search; target=f32[4, 64] · search: from a check that failed) -> f32[]
#: blur(x=f32[4, 8, 64], kernel_size=3 · search) -> f32[4, 8, 62]
#: one_example(x=f32[4, 64] · search) -> f32[4, 64]
#: lies(states=f32[8, 32] · search) -> f32[8]
#: FeedForward(init.args=AttributeDict({'dim': 64, 'hidden_dim': 64, 'scale': 0.5}), x=f32[4, 8, 64] · search) -> f32[4,
#:   8, 64]
