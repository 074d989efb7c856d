"""Inputs without configuration: what is written down first, search last."""

from dataclasses import replace

import pytest
from inline_snapshot import snapshot

PRELUDE = "import math\nimport torch\nfrom torch import nn, Tensor\nimport torch.nn.functional as F\n"


def test_unpacking_a_shape_fixes_the_rank(trace):
    traced = trace(
        PRELUDE
        + """
def f(x):
    b, t, h, d = x.shape
    return x.transpose(1, 2).reshape(b, h, t * d)
"""
    )
    assert traced.inputs() == snapshot(["x: f32[4, 8, 12, 64] · search"])


def test_sizes_are_tied_where_the_code_ties_them(trace):
    traced = trace(
        PRELUDE
        + """
def attention(q, k, v):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    return scores.softmax(-1) @ v
""",
        "attention",
    )
    assert traced.inputs() == snapshot(
        ["q: f32[4, 8, 12, 64] · search", "k: f32[4, 8, 24, 64] · search", "v: f32[4, 8, 24, 96] · search"]
    )


def test_products_heads_and_fused_projections(trace):
    traced = trace(
        PRELUDE
        + """
def mha(x, w_qkv, w_out, n_heads: int):
    b, t, d = x.shape
    q, k, v = (x @ w_qkv).view(b, t, 3, n_heads, d // n_heads).permute(2, 0, 3, 1, 4)
    y = F.scaled_dot_product_attention(q, k, v)
    return y.transpose(1, 2).reshape(b, t, d) @ w_out
""",
        "mha",
    )
    assert traced.inputs() == snapshot(
        [
            "x: f32[4, 8, 64] · search",
            "w_qkv: f32[64, 192] · search",
            "w_out: f32[64, 96] · search",
            "n_heads: 4 · search",
        ]
    )


def test_indices_labels_and_masks_get_their_dtypes(trace):
    traced = trace(
        PRELUDE
        + """
def f(ids, table, labels, mask):
    logits = F.embedding(ids, table).masked_fill(mask, 0.0)
    return F.cross_entropy(logits.flatten(0, 1), labels)
"""
    )
    assert traced.inputs() == snapshot(
        [
            "ids: i64[4, 8] · search",
            "table: f32[12, 64] · search",
            "labels: i64[32] · search",
            "mask: b8[8, 64] · search",
        ]
    )


def test_modules_construct_from_defaults_and_guessed_sizes(trace):
    traced = trace(
        PRELUDE
        + """
class Block(nn.Module):
    def __init__(self, dim, n_heads, dropout=0.1):
        super().__init__()
        assert dim % n_heads == 0
        self.attn = nn.MultiheadAttention(dim, n_heads, dropout, batch_first=True)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x, attn_mask=None):
        h = self.norm(x)
        return x + self.attn(h, h, h, attn_mask=attn_mask)[0]
""",
        "Block",
    )
    assert traced.inputs() == snapshot(
        ["init.dim: 64 · search", "init.n_heads: 4 · search", "x: f32[4, 8, 64] · search", "attn_mask: None · default"]
    )


def test_an_image_network_gets_images(trace):
    traced = trace(
        PRELUDE
        + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3)
        self.fc = nn.Linear(16, 10)

    def forward(self, img):
        return self.fc(F.relu(self.conv(img)).mean((2, 3)))
""",
        "Net",
    )
    assert traced.inputs() == snapshot(["img: f32[4, 3, 64, 64] · search"])


def test_a_constructor_that_reads_values_is_built_from_real_tensors(trace):
    traced = trace(
        PRELUDE
        + """
class Net(nn.Module):
    def __init__(self, depth=4):
        super().__init__()
        self.rates = [r.item() for r in torch.linspace(0, 0.5, depth)]
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        return self.fc(x) * self.rates[-1]
""",
        "Net",
    )
    assert "0.5" in traced.graph("forward")


def test_get_inputs_and_get_init_inputs(trace):
    traced = trace(
        PRELUDE
        + """
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
""",
        "Model",
    )
    assert traced.inputs() == snapshot(
        [
            "init.features: 48 · convention",
            "init.eps: 0.001 · convention",
            "x: f32[16, 48] · convention",
            "scale: 2.0 · convention",
        ]
    )


@pytest.mark.parametrize(
    ("parameters", "given", "plans"),
    [
        ("features, eps=1e-5", "[[], {'features': 48}]", ["init.features: 48"]),
        ("features, eps=1e-5", "[[48], {'eps': 1e-3}]", ["init.features: 48", "init.eps: 0.001"]),
        ("features=48", "[[], {}]", []),
        ("features", "[[48], {}]", ["init.features: 48"]),
        ("features, options", "[[48], {}]", ["init.features[0]: 48"]),
        ("features, options", "[[48], {'eps': 1}]", ["init.features[0]: 48", "init.options['eps']: 1"]),
    ],
)
def test_get_init_inputs_may_be_positions_and_names(trace, parameters, given, plans):
    source = f"""
class Model(nn.Module):
    def __init__(self, {parameters}):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x):
        return x * self.weight

def get_inputs():
    return [torch.rand(16, 48)]

def get_init_inputs():
    return {given}
"""
    said = [f"{plan} · convention" for plan in plans]
    assert trace(PRELUDE + source, "Model").inputs() == [*said, "x: f32[16, 48] · convention"]


def test_a_comment_wins_and_the_rest_is_searched(trace):
    traced = trace(
        PRELUDE
        + """
# fx: x=f32[3, 5]
def f(x, w):
    return x @ w
"""
    )
    assert traced.inputs() == snapshot(["x: f32[3, 5] · comment", "w: f32[5, 64] · search"])


def test_a_comment_with_constructor_arguments_expressions_and_strides(trace):
    traced = trace(
        PRELUDE
        + """
# fx: init(act=nn.GELU()), x=f16[4, 8](1, 4)
class Act(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.act = act

    def forward(self, x):
        return self.act(x)
""",
        "Act",
    )
    assert traced.inputs() == snapshot(["init.act: nn.GELU() · comment", "x: f16[4, 8](1, 4) · comment"])
    assert traced.trace.outputs == snapshot(("f16[4, 8](1, 4)",))


def test_a_default_stays_as_it_is_where_the_code_runs_with_it(trace):
    traced = trace(
        PRELUDE
        + """
def f(x, bias=None, scale: float = 2.0):
    y = torch.relu(x) * scale
    return y if bias is None else y + bias
"""
    )
    assert traced.inputs() == snapshot(["x: f32[4, 64] · search", "bias: None · default", "scale: 2.0 · default"])


def test_none_where_a_tensor_is_needed_is_repaired(trace):
    traced = trace(
        PRELUDE
        + """
def f(x: Tensor, pair: tuple[Tensor, Tensor] | None = None):
    cos, sin = pair
    return x * cos + x * sin
"""
    )
    assert traced.inputs() == snapshot(
        ["x: f32[4, 64] · search", "pair[0]: f32[4, 64] · search", "pair[1]: f32[4, 64] · search"]
    )


def test_enums_literals_dtypes_and_dataclass_configs(trace):
    traced = trace(
        PRELUDE
        + """
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
""",
        "Net",
    )
    assert traced.inputs() == snapshot(
        [
            "init.config: Config() · annotation",
            "init.mode: 'mean' · annotation",
            "init.dtype: torch.float32 · search",
            "x: f32[4, 8, 24] · search",
        ]
    )


def test_a_search_begins_with_what_an_earlier_text_was_traced_with(trace):
    text = PRELUDE + "def f(x, y, n: int):\n    return (x @ y).sum(-1) * n\n"
    first = trace(text).outcome.inputs
    assert trace(text, previous=first).outcome.inputs == first
    smaller = tuple(replace(i, spec=i.spec.replace("64", "48")) for i in first)
    assert trace(text, previous=smaller).inputs() == snapshot(
        ["x: f32[4, 48] · search", "y: f32[48, 32] · search", "n: 2 · search"]
    )


def test_what_an_earlier_text_was_traced_with_is_left_where_it_fits_no_longer(trace):
    first = trace(PRELUDE + "def f(x, y):\n    return x @ y\n").outcome.inputs
    text = PRELUDE + "def f(x, y):\n    return torch.bmm(x, y)\n"
    assert trace(text, previous=first).inputs() == trace(text).inputs()


def test_what_a_comment_gives_but_nobody_can_make_is_the_comments_error(trace):
    source = "import torch\ndef f(x, n):\n    return x * n\n"
    for given, said in (
        ("x=f32[4], n=unknown", "cannot create `n`: NameError: name 'unknown' is not defined"),
        ("x=f32[4]@nothing, n=2", "cannot create `x`: "),
        ("x=f32[99999999999, 9999999999], n=2", "cannot create `x`: "),
    ):
        failure = trace(source, comment=given).failure
        assert (failure.kind, failure.severity) == ("comment", "error")
        assert failure.message.startswith(said)


def test_constructor_arguments_of_a_comment_that_do_not_fit(trace):
    source = """
import torch
class Net(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.layer = torch.nn.Linear(dim, dim)

    def forward(self, x):
        return self.layer(x)
"""
    failure = trace(source, "Net", comment="init(width=4), x=f32[4, 8]").failure
    assert (failure.kind, failure.severity) == ("comment", "error")
    assert failure.message == "Net's constructor has no parameter `width`; its parameters are dim"
    failure = trace(source, "Net", comment="init(dim='a'), x=f32[4, 8]").failure
    assert (failure.kind, failure.severity) == ("construct", "error")
    assert failure.message.startswith("TypeError: ") and failure.message.endswith(" (constructing Net)")
    failure = trace(source, "Net", comment="init(dim=nothing), x=f32[4, 8]").failure
    assert failure.message == "cannot create `init.dim`: NameError: name 'nothing' is not defined"


def test_states_and_masks_have_the_shapes_that_layers_take(trace):
    source = """
        import torch
        from torch import nn

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
                return self.norm(x + y)
        """
    inputs = trace(source, "Stateful").trace.inputs
    assert [(i.name, i.spec) for i in inputs if i.name.startswith("state")] == snapshot(
        [("state[0]", "f32[2, 4, 48]"), ("state[1]", "f32[2, 4, 48]")]
    )
    inputs = trace(source, "Masked").trace.inputs
    assert [(i.name, i.spec) for i in inputs] == snapshot(
        [("x", "f32[4, 8, 64]"), ("causal", "f32[8, 8]"), ("padding", "b8[4, 8]")]
    )


def test_the_annotation_of_a_number_describes_no_tensor_of_its_name(trace):
    source = """
        from torch import nn

        class Melody(nn.Module):
            def __init__(self, notes: int, width: int = 8):
                super().__init__()
                self.embed = nn.Embedding(notes, width)

            def forward(self, notes):
                return self.embed(notes).view(notes.size(0), -1)
        """
    assert [(i.name, i.spec) for i in trace(source, "Melody").trace.inputs if i.name == "notes"] == [
        ("notes", "i64[4, 8]")
    ]
