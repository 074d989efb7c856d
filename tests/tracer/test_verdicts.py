"""What is wrong with code that runs only by accident, or with nothing at all, and its correct twin."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import TraceFixture
from inline_snapshot import snapshot

from fx_lsp.model import Failure

PRELUDE = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"

ATTENTION = """
class Attention(nn.Module):
    def __init__(self, dim: int = 64, heads: int = 4):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (y.view(B, T, self.heads, C // self.heads).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-2, -1)
        y = scores.softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(B, T, C))
"""
POSITIONS = """
class Positions(nn.Module):
    def __init__(self, dim: int = 64):
        super().__init__()
        self.register_buffer("table", torch.zeros(512, 1, dim))

    def forward(self, x):
        T, B, C = x.shape
        return x + self.table[: x.size(0)]
"""
RESIDUAL = """
class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x):
        y = self.first(x)
        return F.relu(self.second(y) + y)
"""
RECURRENT = """
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.rnn, self.head = nn.Embedding(100, 16), nn.LSTM(16, 32), nn.Linear(32, 5)

    def forward(self, ids):
        states, _ = self.rnn(self.words(ids))
        return self.head(states)
"""
REGRESSION = """
class Regression(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 1)

    def forward(self, x, y):
        return (self.head(x).squeeze(-1) - y).pow(2).mean()

if __name__ == "__main__":
    Regression()(torch.randn(32, 8), torch.randn(32))
"""

TEXT = """
class Text(nn.Module):
    def __init__(self, words, width: int = 128):
        super().__init__()
        self.words, self.conv = nn.Embedding(words, width), nn.Conv1d(width, 32, 3, padding=1)

    def forward(self, ids):
        x = self.words(ids).transpose(1, 2)
        return self.conv(x).amax(-1)
"""
CLASS_TOKEN = """
class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.zeros(1, 1, 32))

    def forward(self, x):
        first = self.first.expand(x.shape[0], -1, -1)
        return torch.cat([first, x], 1)
"""
LANGUAGE_MODEL = """
from dataclasses import dataclass

@dataclass
class Settings:
    words: int = 1000
    width: int = 64

class Model(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.words = nn.Embedding(settings.words, settings.width)
        self.head = nn.Linear(settings.width, settings.words)

    def forward(self, ids, targets=None):
        logits = self.head(self.words(ids))
        if targets is None:
            return logits
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
"""
STATES = """
class Sequences(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.rnn = nn.GRU(width, 2 * width, batch_first=True)

    def forward(self, x):
        start = torch.zeros(1, x.size(0), self.rnn.hidden_size)
        return self.rnn(x, start)[0]
"""
BOTH_WAYS = """
class Classifier(nn.Module):
    def __init__(self, width, hidden, classes):
        super().__init__()
        self.rnn = nn.LSTM(width, hidden, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * hidden, classes)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])
"""
FACTORY = """
class Stack(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        self.head = nn.Linear(widths[-1], 10)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return self.head(x)

def small():
    return Stack([16, 32, 64])
"""
ROTARY = """
class Rotary(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.query = heads, nn.Linear(dim, dim)
        self.register_buffer("rates", 1.0 / 10000 ** (torch.arange(0, dim // heads) / (dim // heads)))

    def forward(self, x):
        B, T, C = x.shape
        q = self.query(x).view(B, T, self.heads, -1)
        angles = torch.outer(torch.arange(T), self.rates)
        return q * angles[:, None, :].cos()
"""
SLOPES = """
class Slopes(nn.Module):
    def __init__(self, dim: int = 96, heads: int = 6):
        super().__init__()
        self.heads, self.qk = heads, nn.Linear(dim, 2 * dim)
        self.register_buffer("slopes", torch.ones(heads).view(-1, 1, 1))

    def forward(self, x):
        B, T, C = x.shape
        q, k = (y.view(B, T, self.heads, -1).transpose(1, 2) for y in self.qk(x).chunk(2, -1))
        distance = torch.arange(T)[None, :] - torch.arange(T)[:, None]
        return (q @ k.transpose(-2, -1) + self.slopes * distance).softmax(-1)
"""
GRAM = """
def gram(features):
    b, c, h, w = features.shape
    flat = features.view(b, c, h * w)
    return torch.bmm(flat, flat.transpose(1, 2))
"""
BRANCHES = """
class Branches(nn.Module):
    def __init__(self, channels, narrow, wide):
        super().__init__()
        self.first, self.second = nn.Conv2d(channels, narrow, 1), nn.Conv2d(channels, wide, 3, padding=1)

    def forward(self, x):
        return torch.cat([self.first(x), self.second(x)], 1)
"""
LOW_RANK = """
class LowRank(nn.Module):
    def __init__(self, width, outputs, rank=8):
        super().__init__()
        self.base = nn.Linear(width, outputs)
        self.down, self.up = nn.Parameter(torch.zeros(rank, width)), nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, x):
        return self.base(x) + x @ self.down.T @ self.up.T
"""
CRITIC = """
class Critic(nn.Module):
    def __init__(self, state_dim, action_dim):
        super().__init__()
        self.value = nn.Linear(state_dim + action_dim, 1)

    def forward(self, states, action):
        return self.value(torch.cat([states, action], -1)).squeeze(-1)
"""
PATCHES = """
from dataclasses import dataclass

@dataclass
class Settings:
    image_size: int = 32
    patch: int = 4

class Patches(nn.Module):
    def __init__(self, settings: Settings):
        super().__init__()
        count = (settings.image_size // settings.patch) ** 2
        self.patches = nn.Conv2d(3, 64, settings.patch, settings.patch)
        self.first, self.places = nn.Parameter(torch.zeros(1, 1, 64)), nn.Parameter(torch.zeros(1, count + 1, 64))

    def forward(self, pixels):
        x = self.patches(pixels).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1)
        return x + self.places
"""
STATEFUL = """
class Stateful(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.words, self.rnn, self.head = nn.Embedding(words, 32), nn.LSTM(32, 48, 2), nn.Linear(48, words)

    def forward(self, ids, state):
        y, state = self.rnn(self.words(ids).transpose(0, 1), state)
        return self.head(y.transpose(0, 1).reshape(-1, 48)), state
"""
MASKED = """
class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.norm = nn.MultiheadAttention(64, 4, batch_first=True), nn.LayerNorm(64)

    def forward(self, x, causal, padding):
        y, _ = self.attention(x, x, x, attn_mask=causal, key_padding_mask=padding)
        return self.norm(x + y)
"""


def said(trace: TraceFixture, source: str, name: str) -> list[tuple[str, str]]:
    """The severity and the text of everything that is worse than information, on whatever expression it stands."""
    outcome = trace(PRELUDE + source, name).outcome
    found = [outcome] if isinstance(outcome, Failure) else outcome.remarks
    lines = (PRELUDE + source).splitlines()
    return [
        (item.severity, lines[item.span.line - 1].encode()[item.span.col : item.span.end_col].decode())
        for item in found
        if item.severity != "information" and item.span is not None
    ]


BLOCKS = """
class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
        self.masked = nn.Sequential(nn.Linear(64, 64))
        self.users, self.items = nn.Embedding(9, 64), nn.Embedding(9, 64)

    def forward(self, user, item):
        pair = torch.stack([self.users(user), self.items(item)], 0)
        return self.masked(self.blocks(torch.relu(pair)))
"""
ONE_HOT = """
class Relations(nn.Module):
    def __init__(self):
        super().__init__()
        self.names, self.table = nn.Embedding(9, 32), nn.Parameter(torch.zeros(6, 32))

    def forward(self, head, relation):
        rows = F.one_hot(relation, 6).float()
        return self.names(head) * (rows @ self.table)
"""
CAUSAL = """
class Causal(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.attend = nn.Embedding(100, 64), nn.MultiheadAttention(64, 4, batch_first=True)

    def forward(self, ids):
        x, length = self.words(ids), ids.size(1)
        mask = torch.ones(length, length).triu(1).bool()
        return self.attend(x, x, x, attn_mask=mask)[0]
"""
SPECTRAL = """
class Spectral(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift, self.mix, self.skip = nn.Linear(2, 32), nn.Parameter(torch.zeros(32, 32)), nn.Conv1d(32, 32, 1)

    def forward(self, x):
        x = self.lift(x).transpose(1, 2)
        return torch.einsum("bix,io->box", x.relu(), self.mix) + self.skip(x)
"""
GATES = """
class Gates(nn.Module):
    def __init__(self, input_dim, hidden_dim):
        super().__init__()
        self.hidden_dim, self.gates = hidden_dim, nn.Conv2d(input_dim + hidden_dim, hidden_dim, 3, padding=1)

    def forward(self, x):
        state = x.new_zeros(x.size(0), self.hidden_dim, x.size(2), x.size(3))
        return self.gates(torch.cat([x, state], dim=1))
"""
SKIP_GRAM = """
class SkipGram(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.words = nn.Embedding(500, dim)

    def forward(self, centre, negatives):
        return torch.bmm(self.words(negatives), self.words(centre).unsqueeze(2)).squeeze(2)
"""
PAIR = """
class Pair(nn.Module):
    def __init__(self, words, width, classes):
        super().__init__()
        self.words, self.rnn = nn.Embedding(words, width), nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(3 * width, classes)

    def forward(self, first, second):
        u, v = (self.rnn(self.words(tokens))[1][-1] for tokens in (first, second))
        return self.head(torch.cat([u, v, (u - v).abs()], 1))
"""
LAST_STATES = """
class LastStates(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.words, self.rnn = nn.Embedding(100, 32), nn.LSTM(32, 48, layers, batch_first=True)
        self.head = nn.Linear(48, 5)

    def forward(self, text):
        state = self.rnn(self.words(text))[1][0]
        return self.head(state[-1])
"""
NEAREST = """
def nearest(first, second):
    \"\"\"The distance of points to the nearest of others, first: (batch, n, 3), second: (batch, m, 3).\"\"\"
    return (first.unsqueeze(2) - second.unsqueeze(1)).pow(2).sum(-1).amin(2)
"""
SCALED = """
class Scaled(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(classes, 8))
        self.scale = nn.Parameter(torch.full((classes,), 10.0))

    def forward(self, x):
        return F.linear(x, self.weight) * self.scale
"""
TIMES = """
import numpy as np

class Times(nn.Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.width, self.layer = width, nn.Linear(width, 32)

    def forward(self, t):
        steps = torch.from_numpy(np.exp(-np.arange(self.width))).float()
        return self.layer(t[:, None].float() * steps)
"""
HALVED = """
class Halved(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body, self.pool = nn.Conv2d(channels, channels, 3, padding=1), nn.AvgPool2d(2)

    def forward(self, x):
        return self.pool(self.body(x)) + self.pool(x)
"""
TWICE = """
class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(64), nn.Linear(64, 64)

    def forward(self, x):
        x = x + self.layer(self.norm(x))
        return x

class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(Part() for _ in range(2))

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x
"""
QUERIES = """
class Queries(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.queries = nn.Parameter(torch.zeros(32, width))
        self.norm, self.layer = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        queries = self.queries.expand(x.shape[0], -1, -1)
        return self.layer(torch.cat([self.norm(x), queries], 1))
"""
GROWN = """
class Grown(nn.Module):
    def __init__(self, width: int, depth: int = 3):
        super().__init__()
        self.parts = nn.ModuleList([nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(depth)])

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x
"""
DIRECTIONS = """
class Directions(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(40, 16, bidirectional=True, batch_first=True)

    def forward(self, x):
        start = x.new_zeros(2, x.size(0), 16)
        return self.rnn(x, (start, start))[0]
"""
ALIGNED = """
class Aligned(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.turn = nn.Conv1d(3, 64, 1), nn.Linear(64, 9)

    def forward(self, x):
        turn = self.turn(self.conv(x).amax(2)).view(-1, 3, 3)
        return torch.bmm(turn, x)
"""


@pytest.mark.parametrize(
    ("source", "name", "right", "wrong", "expected"),
    [
        pytest.param(
            ATTENTION, "Attention", "k.transpose(-2, -1)", "k", [("warning", "q @ k")], id="scores without transpose"
        ),
        pytest.param(
            ATTENTION,
            "Attention",
            "y.transpose(1, 2).reshape(B, T, C)",
            "y.transpose(1, 2).view(B, T, C)",
            [("error", "y.transpose(1, 2).view(B, T, C)")],
            id="a view of a transposed tensor",
        ),
        pytest.param(
            POSITIONS,
            "Positions",
            "T, B, C = x.shape\n        return x + self.table[: x.size(0)]",
            "T, B, C = x.shape\n        return x + self.table[: x.size(1)]",
            [("warning", "x + self.table[: x.size(1)]")],
            id="positions along the wrong axis",
        ),
        pytest.param(
            RESIDUAL, "Residual", "16, 16, 3, padding=1", "16, 32, 3, padding=1", [("error", "self.second(y) + y")],
            id="a residual of other channels",
        ),
        pytest.param(
            RECURRENT,
            "Tagger",
            "states, _ = self.rnn",
            "states = self.rnn",
            [("error", "self.head(states)")],
            id="what a layer returns besides",
        ),
        pytest.param(
            REGRESSION,
            "Regression",
            "self.head(x).squeeze(-1)",
            "self.head(x)",
            [("warning", "self.head(x) - y")],
            id="a column and a row",
        ),
        pytest.param(
            REGRESSION,
            "Regression",
            "nn.Linear(8, 1)",
            "nn.Linear(9, 1)",
            [("error", "self.head(x)")],
            id="a call that fails",
        ),
        pytest.param(
            TEXT, "Text", ".transpose(1, 2)", "", [("warning", "self.conv(x)")], id="tokens as channels"
        ),
        pytest.param(
            CLASS_TOKEN,
            "Tokens",
            "self.first.expand(x.shape[0], -1, -1)",
            "self.first",
            [("warning", "torch.cat([first, x], 1)")],
            id="a batch of one alone",
        ),
        pytest.param(
            LANGUAGE_MODEL,
            "Model",
            "logits.view(-1, logits.size(-1))",
            "logits.view(-1, 64)",
            [("warning", "F.cross_entropy(logits.view(-1, 64), targets.view(-1))")],
            id="a loss that the call without targets does not reach",
        ),
        pytest.param(
            STATES,
            "Sequences",
            "x.size(0)",
            "x.size(1)",
            [("warning", "self.rnn(x, start)")],
            id="another batch's state",
        ),
        pytest.param(
            BOTH_WAYS,
            "Classifier",
            "2 * hidden, classes",
            "hidden, classes",
            [("warning", "self.head(self.rnn(x)[0][:, -1])")],
            id="numbers of a constructor that never fit",
        ),
        pytest.param(
            FACTORY,
            "Stack",
            "nn.Linear(widths[-1], 10)",
            "nn.Linear(widths[0], 10)",
            [("error", "self.head(x)")],
            id="what a factory makes",
        ),
        pytest.param(
            ROTARY,
            "Rotary",
            "angles[:, None, :].cos()",
            "angles.cos()",
            [("warning", "q * angles.cos()")],
            id="as many positions as heads",
        ),
        pytest.param(
            SLOPES,
            "Slopes",
            "torch.ones(heads).view(-1, 1, 1)",
            "torch.ones(heads)",
            [("warning", "self.slopes * distance")],
            id="as many pairs as heads",
        ),
        pytest.param(
            GRAM,
            "gram",
            "flat.transpose(1, 2)",
            "flat",
            [("warning", "torch.bmm(flat, flat)")],
            id="a matrix times itself",
        ),
        pytest.param(
            BRANCHES,
            "Branches",
            "self.second(x)], 1)",
            "self.second(x)], 2)",
            [("warning", "torch.cat([self.first(x), self.second(x)], 2)")],
            id="two numbers of a constructor that are one",
        ),
        pytest.param(
            LOW_RANK,
            "LowRank",
            "self.down.T @ self.up.T",
            "self.down @ self.up",
            [("warning", "x @ self.down")],
            id="a default that is the width",
        ),
        pytest.param(
            CRITIC,
            "Critic",
            "state_dim + action_dim, 1",
            "state_dim, 1",
            [("warning", "self.value(torch.cat([states, action], -1))")],
            id="inputs of another width than the numbers named after them",
        ),
        pytest.param(
            PATCHES,
            "Patches",
            "count + 1, 64",
            "count, 64",
            [("warning", "x + self.places")],
            id="images of another size than the configuration says",
        ),
        pytest.param(
            STATEFUL,
            "Stateful",
            "y.transpose(0, 1).reshape(-1, 48)",
            "y.transpose(0, 1).view(-1, 48)",
            [("warning", "y.transpose(0, 1).view(-1, 48)")],
            id="after a layer that takes two states",
        ),
        pytest.param(
            BLOCKS,
            "Blocks",
            "torch.relu(pair)",
            "nn.ReLU(pair)",
            [("warning", "self.blocks(nn.ReLU(pair))")],
            id="a layer in place of a tensor",
        ),
        pytest.param(
            BLOCKS,
            "Blocks",
            "torch.stack([self.users(user), self.items(item)], 0)",
            "torch.cat(self.users(user), self.items(item))",
            [("warning", "torch.cat(self.users(user), self.items(item))")],
            id="tensors that are not in a list",
        ),
        pytest.param(
            BLOCKS,
            "Blocks",
            "nn.Sequential(nn.Linear(64, 64), nn.ReLU())",
            "nn.ModuleList([nn.Linear(64, 64), nn.ReLU()])",
            [("warning", "self.blocks(torch.relu(pair))")],
            id="a list of layers that is called",
        ),
        pytest.param(
            BLOCKS,
            "Blocks",
            "self.masked(self.blocks(torch.relu(pair)))",
            "self.masked(self.blocks(torch.relu(pair)), user)",
            [("warning", "self.masked(self.blocks(torch.relu(pair)), user)")],
            id="an argument that nothing takes",
        ),
        pytest.param(
            ONE_HOT,
            "Relations",
            "F.one_hot(relation, 6).float()",
            "F.one_hot(relation, 6)",
            [("warning", "rows @ self.table")],
            id="a dtype that no rank changes",
        ),
        pytest.param(
            CAUSAL,
            "Causal",
            "ids.size(1)",
            "ids.size(0)",
            [("warning", "self.attend(x, x, x, attn_mask=mask)")],
            id="a batch of tokens is no matrix",
        ),
        pytest.param(
            SPECTRAL,
            "Spectral",
            "self.lift(x).transpose(1, 2)",
            "self.lift(x)",
            [("warning", 'torch.einsum("bix,io->box", x.relu(), self.mix)')],
            id="sizes that are one where they meet again",
        ),
        pytest.param(
            GATES,
            "Gates",
            "nn.Conv2d(input_dim + hidden_dim,",
            "nn.Conv2d(input_dim,",
            [("warning", "self.gates(torch.cat([x, state], dim=1))")],
            id="an input of another width than the one that is named after it",
        ),
        pytest.param(
            SKIP_GRAM,
            "SkipGram",
            "self.words(centre).unsqueeze(2)",
            "self.words(centre)",
            [("warning", "torch.bmm(self.words(negatives), self.words(centre))")],
            id="as many tokens as a model is wide",
        ),
        pytest.param(
            ALIGNED,
            "Aligned",
            "torch.bmm(turn, x)",
            "torch.bmm(x, turn)",
            [("warning", "torch.bmm(x, turn)")],
            id="as many points as they have coordinates",
        ),
        pytest.param(
            PAIR,
            "Pair",
            '3 * width',
            '2 * width',
            [("warning", "self.head(torch.cat([u, v, (u - v).abs()], 1))")],
            id="constants that meet, though inputs of other ranks come further",
        ),
        pytest.param(
            LAST_STATES,
            "LastStates",
            'state[-1]',
            'state.transpose(0, 1).flatten(1)',
            [("error", "self.head(state.transpose(0, 1).flatten(1))")],
            id="constants that only a batch meets",
        ),
        pytest.param(
            NEAREST,
            "nearest",
            'second.unsqueeze(1)',
            'second',
            [("warning", "first.unsqueeze(2) - second")],
            id="sizes that a docstring calls the same",
        ),
        pytest.param(
            SCALED,
            "Scaled",
            '10.0',
            '10',
            [("warning", "nn.Parameter(torch.full((classes,), 10))")],
            id="a constructor that nothing runs with",
        ),
        pytest.param(
            TIMES,
            "Times",
            '.float()\n        return',
            '\n        return',
            [("warning", "self.layer(t[:, None].float() * steps)")],
            id="what NumPy makes in double precision",
        ),
        pytest.param(
            HALVED,
            "Halved",
            '+ self.pool(x)',
            '+ x',
            [("warning", "self.pool(self.body(x)) + x")],
            id="what strides leave of an image, stretched over it",
        ),
        pytest.param(
            TWICE,
            "Twice",
            '        x = x + self.layer(self.norm(x))\n        return x',
            '        x = x + self.layer(self.norm(x))',
            [("error", "self.norm(x)")],
            id="the second turn of a loop",
        ),
        pytest.param(
            QUERIES,
            "Queries",
            'x.shape[0], -1, -1',
            'x.shape[0], -1',
            [("warning", "self.queries.expand(x.shape[0], -1)")],
            id="a batch of as many as there are queries, before it fails",
        ),
        pytest.param(
            GROWN,
            "Grown",
            'nn.Sequential(nn.Linear(width, width), nn.ReLU())',
            '[nn.Linear(width, width), nn.ReLU()]',
            [("warning", "nn.ModuleList([[nn.Linear(width, width), nn.ReLU()] for _ in range(depth)])")],
            id="no parts in place of as many as the default says",
        ),
        pytest.param(
            DIRECTIONS,
            "Directions",
            'new_zeros(2',
            'new_zeros(1',
            [("error", "self.rnn(x, (start, start))")],
            id="a state that no input mends",
        ),
    ],
)  # fmt: skip
def test_a_mistake_and_its_twin(
    trace: TraceFixture, source: str, name: str, right: str, wrong: str, expected: list[tuple[str, str]]
) -> None:
    assert right in source
    assert said(trace, source, name) == []
    assert said(trace, source.replace(right, wrong), name) == expected


def test_what_is_wrong_with_an_optional_tensor_is_told_again_after_an_edit(trace: TraceFixture) -> None:
    text = PRELUDE + LANGUAGE_MODEL.replace("logits.view(-1, logits.size(-1))", "logits.view(-1, 64)")
    first = trace(text, "Model").trace
    assert [remark.severity for remark in first.remarks] == ["warning"]
    assert trace(text, "Model", previous=first.inputs).trace.remarks == first.remarks


def test_states_and_masks_are_what_the_layers_take_that_get_them(trace: TraceFixture) -> None:
    inputs = trace(PRELUDE + STATEFUL, "Stateful").trace.inputs
    assert [(i.name, i.spec) for i in inputs if i.name.startswith("state")] == snapshot(
        [("state[0]", "f32[2, 4, 48]"), ("state[1]", "f32[2, 4, 48]")]
    )
    inputs = trace(PRELUDE + MASKED, "Masked").trace.inputs
    assert [(i.name, i.spec) for i in inputs] == snapshot(
        [("x", "f32[4, 8, 64]"), ("causal", "f32[8, 8]"), ("padding", "b8[4, 8]")]
    )


HELD = """
class Mask:
    def __init__(self, rows, device="cpu"):
        self.mask = torch.ones(rows, 1, rows, rows, dtype=torch.bool)

class Attention(nn.Module):
    def forward(self, queries, keys, mask: Mask):
        B, L, H, E = queries.shape
        scores = torch.einsum("blhe,bshe->bhls", queries, keys)
        return scores.masked_fill(mask.mask, 0.0)
"""


def test_a_batch_as_large_as_the_states_that_are_passed_is_no_demand(trace: TraceFixture) -> None:
    source = """
    import torch
    from torch import nn

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.lstm = nn.Embedding(100, 16), nn.LSTM(16, 32, batch_first=True)

        def forward(self, words, states):
            return self.lstm(self.embed(words), states)[0]

    net = Words()
    states = (torch.zeros(1, 20, 32), torch.zeros(1, 20, 32))
    net(read_words("train.txt"), states)
    """
    assert trace(source, "Words").trace.remarks == ()


def test_sizes_of_an_object_that_was_made_up_are_no_demand(trace: TraceFixture) -> None:
    assert said(trace, HELD, "Attention") == []


SCALER = """
import os
class Scaler:
    def __init__(self):
        self.mean = 0.0

    def fit(self, data):
        self.mean = data.mean(0)

    def transform(self, data):
        return data.relu() - torch.mean(self.mean)

class Shard(nn.Module):
    def __init__(self, width: int = 8):
        super().__init__()
        self.rank, self.layer = int(os.environ["SHARD_OF_MODEL"]), nn.Linear(width, width)

    def forward(self, x):
        return self.layer(x)

def penalty(output, x):
    gradient = torch.autograd.grad(output, x, torch.ones(output.size()), create_graph=True)[0]
    return (gradient.norm(2, dim=1) - 1).pow(2).mean()
"""


@pytest.mark.parametrize("name", ["Scaler.transform", "Shard", "penalty"])
def test_what_a_program_does_before_is_not_told_to_be_missing(trace: TraceFixture, name: str) -> None:
    assert said(trace, SCALER, name) == []


NO_MISTAKES = {
    "a list that a loop fills": (
        "f",
        "import numpy as np\n\ndef f(x: torch.Tensor, rows=()):\n    values = [row * x for row in rows]\n"
        "    return x + float(np.concatenate(values).sum())\n",
    ),
    "a package that is not there": (
        "f",
        "try:\n    import no_such_package as fast\nexcept ImportError:\n    fast = None\n\n"
        "def f(x: torch.Tensor):\n    return fast.kernel(x.relu())\n",
    ),
    "a folder that is no package": (
        "f",
        "import sources_of_kernels\n\ndef f(x: torch.Tensor):\n    return sources_of_kernels.forward(x.relu())\n",
    ),
    "options that are handed on": (
        "Small",
        "class Net(nn.Module):\n    def __init__(self, classes=10):\n        super().__init__()\n"
        "        self.classes, self.fc = classes, nn.Linear(8, 8)\n\n    def forward(self, x):\n"
        "        return self.fc(x)\n\nclass Small(Net):\n    def __init__(self, **options):\n"
        "        super().__init__(**options)\n        assert self.classes == 0\n",
    ),
    "a parameter that may be anything": (
        "Norm",
        "class Norm(nn.Module):\n    def __init__(self, mean):\n        super().__init__()\n"
        "        self.mean = torch.tensor(mean).view(1, 3, 1, 1)\n\n"
        "    def forward(self, x):\n        return x - self.mean\n",
    ),
    "an assertion of the program": (
        "f",
        "def f(x: torch.Tensor):\n    y = x.relu()\n    assert y.dtype == torch.bfloat16\n    return y * 2\n",
    ),
    "layers of an option that is 0 by default": (
        "Net",
        "import argparse\n\nclass Net(nn.Module):\n    def __init__(self, args):\n        super().__init__()\n"
        "        self.conv = nn.Conv2d(3, args.extra, 3)\n\n    def forward(self, x):\n        return self.conv(x)\n\n"
        "parser = argparse.ArgumentParser()\nparser.add_argument('--extra', type=int, default=0)\n"
        "net = Net(parser.parse_args())\n",
    ),
    "a file that is not here": (
        "Words",
        "from urllib.request import Request\n\nclass Words(nn.Module):\n    def __init__(self, file):\n"
        "        super().__init__()\n        self.fc, self.request = nn.Linear(8, 8), Request(file)\n\n"
        "    def forward(self, x):\n        return self.fc(x)\n\nwords = Words('words.json')\n",
    ),
    "a value of a tensor": (
        "f",
        "def f(spec: torch.Tensor):\n    point = spec[0][spec.shape[1] // 2][3]\n"
        "    return spec + torch.tensor([[[2, point]]]).sum()\n",
    ),
}


@pytest.mark.parametrize("name, source", NO_MISTAKES.values(), ids=NO_MISTAKES.keys())
def test_what_is_not_here_is_no_mistake(trace: TraceFixture, tmp_path: Path, name: str, source: str) -> None:
    (tmp_path / "sources_of_kernels").mkdir()
    assert said(trace, PRELUDE + source, name) == []


def test_sizes_that_a_docstring_says(trace: TraceFixture) -> None:
    source = '''
class Net(nn.Module):
    """Classifies CIFAR images (3 x 32 x 32)."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Linear(8 * 16 * 16, 10)

    def forward(self, x):
        return self.fc(self.conv(x).flatten(1))
'''
    assert said(trace, PRELUDE + source, "Net") == []
    wrong = source.replace("8 * 16 * 16", "8 * 32 * 32")
    assert said(trace, PRELUDE + wrong, "Net") == [("warning", "self.fc(self.conv(x).flatten(1))")]
    of_parameter = wrong.replace("(3 x 32 x 32).", "").replace(
        "forward(self, x):", 'forward(self, x):\n        """x: (B, 3, 32, 32)"""'
    )
    assert said(trace, PRELUDE + of_parameter, "Net") == [("warning", "self.fc(self.conv(x).flatten(1))")]


def test_a_letter_that_a_docstring_has_for_two_widths_which_are_joined(trace: TraceFixture) -> None:
    source = '''
class Joined(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv1d(128, width, 1)

    def forward(self, near, far, points, others):
        """
        near: places, [B, C, N]
        far: places, [B, C, S]
        points: what is known there, [B, D, N]
        others: what is known there, [B, D, S]
        """
        weights = torch.cdist(near.permute(0, 2, 1), far.permute(0, 2, 1)).softmax(-1)
        points = torch.cat([points.permute(0, 2, 1), weights @ others.permute(0, 2, 1)], -1)
        return self.conv(points.permute(0, 2, 1))
'''
    assert said(trace, PRELUDE + source, "Joined") == []


def test_a_number_of_a_module_that_is_passed_is_none_of_the_input(trace: TraceFixture) -> None:
    source = """
class Net(nn.Module):
    def __init__(self, in_channels: int = 3):
        super().__init__()
        self.in_channels, self.conv = in_channels, nn.Conv2d(in_channels, 8, 3)

    def forward(self, x):
        return self.conv(x)

class Rows(nn.Module):
    def __init__(self, net: Net):
        super().__init__()
        self.net, self.table = net, nn.Parameter(torch.zeros(64, 192))

    def forward(self, x):
        return self.net((x @ self.table).view(-1, 3, 8, 8))
"""
    assert said(trace, source, "Rows") == []


def test_nothing_is_told_of_expressions_in_other_files(trace: TraceFixture, tmp_path: Path) -> None:
    whole = """
class Net(nn.Module):
    def __init__(self, in_features: int = 48):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(64, 8))

    def forward(self, x):
        return {}
"""
    assert said(trace, whole.format("x @ self.weight"), "Net") == [("warning", "x @ self.weight")]
    (tmp_path / "heads_of_nets.py").write_text("def head(x, weight):\n    return x @ weight\n")
    assert said(trace, "from heads_of_nets import head\n" + whole.format("head(x, self.weight)"), "Net") == []


def test_the_input_of_another_method_is_no_input_of_the_layer(trace: TraceFixture) -> None:
    source = """
class Attention(nn.Module):
    def __init__(self, in_features: int = 48, out_features: int = 16):
        super().__init__()
        self.fc, self.key = nn.Linear(in_features, out_features), nn.Parameter(torch.zeros(out_features, 1))

    def scores(self, hidden):
        return torch.matmul(hidden, self.key)

    def forward(self, x):
        return self.scores(self.fc(x))
"""
    assert said(trace, PRELUDE + source, "Attention.scores") == []


def test_an_image_that_is_too_small_is_no_mistake_where_nobody_saw_how_large_it_has_to_be(trace: TraceFixture) -> None:
    source = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.last = nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(4, 4, 3, dilation=4000)

    def forward(self, image):
        if type(image.shape[-1]) is not int:
            raise TypeError("no symbols")
        if image.shape[-1] > 4096:
            raise ValueError("too large")
        return self.last(self.scale(image))
"""
    assert trace(PRELUDE + source, "Net").failure.severity == "information"


def test_what_a_block_forgets_to_return_is_missed_by_the_next(trace: TraceFixture) -> None:
    source = """
class Block(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(dim), nn.Linear(6, 6)

    def forward(self, x):
        x = x + self.fc(self.norm(x).transpose(1, 2)).transpose(1, 2)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(2)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
"""
    assert said(trace, PRELUDE + source, "Net") == [("error", "self.norm(x)")]


def test_an_annotation_of_a_number_is_none_of_a_tensor_of_that_name(trace: TraceFixture) -> None:
    source = """
class Melody(nn.Module):
    def __init__(self, notes: int, width: int = 8):
        super().__init__()
        self.embed = nn.Embedding(notes, width)

    def forward(self, notes):
        return self.embed(notes).view(notes.size(0), -1)
"""
    assert [given.name for given in trace(PRELUDE + source, "Melody").trace.inputs if given.spec == "i64[4, 8]"] == [
        "notes"
    ]


def test_a_check_of_an_option_that_nobody_gave_is_no_error(trace):
    source = """
        import argparse
        import torch

        def load(x: torch.Tensor, folder: str):
            if not folder:
                raise ValueError("no folder")
            return x.relu()

        if __name__ == "__main__":
            parser = argparse.ArgumentParser()
            parser.add_argument("--folder", default="")
            load(torch.ones(3), parser.parse_args().folder)
    """
    failure = trace(source, "load").failure
    assert (failure.severity, failure.message) == ("information", "no folder")
    assert trace(source.replace("parser.parse_args().folder", '""'), "load").failure.severity == "error"
