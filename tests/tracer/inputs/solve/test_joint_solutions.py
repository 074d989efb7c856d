"""Numbers of constructors and sizes of inputs, solved for in one search."""

from conftest import Traced, TraceFixture

PRELUDE = "import numpy as np\nimport torch\nfrom torch import nn, Tensor\n"


def given(traced: Traced) -> dict[str, str]:
    """What the trace's inputs are, by name."""
    return {i.name: i.spec for i in traced.trace.inputs}


ATTENTION = """
class Attention(nn.Module):
    def __init__(self, n_word_vec, n_head, n_key, n_value, d_model):
        super().__init__()
        self.n_head, self.n_key, self.n_value = n_head, n_key, n_value
        self.words = nn.Embedding(100, n_word_vec)
        self.norm = nn.LayerNorm(d_model)
        self.keys = nn.Linear(d_model, n_head * n_key)
        self.values = nn.Linear(d_model, n_head * n_value)
        self.out = nn.Linear(n_head * n_value, d_model)

    def forward(self, tokens, mask, context):
        x = self.norm(self.words(tokens))
        b, t, s = x.size(0), x.size(1), context.size(1)
        q = self.keys(x).view(b, t, self.n_head, self.n_key).transpose(1, 2)
        k = self.keys(context).view(b, s, self.n_head, self.n_key).transpose(1, 2)
        v = self.values(context).view(b, s, self.n_head, self.n_value).transpose(1, 2)
        scores = (q @ k.transpose(2, 3)).masked_fill(mask.unsqueeze(1) == 0, -1e9)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, -1)) + x
"""


def test_numbers_of_the_constructor_and_sizes_are_solved_for_together(trace: TraceFixture) -> None:
    inputs = given(trace(PRELUDE + ATTENTION, "Attention"))
    assert inputs["init.n_word_vec"] == inputs["init.d_model"] == "64"
    batch = inputs["tokens"].partition("[")[2].partition(",")[0]
    assert inputs["context"].startswith(f"f32[{batch}, ") and inputs["context"].endswith(", 64]")
    assert inputs["mask"].startswith(f"f32[{batch}, ")


TABLE = """
class Positions(nn.Module):
    def __init__(self, d_hid, n_units):
        super().__init__()
        angles = np.array([[p / np.power(10000, 2 * (i // 2) / d_hid) for i in range(d_hid)] for p in range(50)])
        self.register_buffer("table", torch.FloatTensor(np.sin(angles)).unsqueeze(0))
        self.up = nn.Linear(n_units, n_units)

    def forward(self, x):
        return self.up(x) + self.table[:, : x.size(1)]
"""


def test_tables_of_numpy_follow_the_numbers_they_are_made_with(trace: TraceFixture) -> None:
    inputs = given(trace(PRELUDE + TABLE, "Positions"))
    assert inputs["init.d_hid"] == inputs["init.n_units"]
    assert inputs["x"].endswith(f", {inputs['init.d_hid']}]")


PARTS = """
class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.encoder = nn.Linear(width, width)
        self.decoder = nn.Linear(width, width)


class Search(nn.Module):
    def __init__(self, model, beam_size):
        super().__init__()
        self.model = model
        self.model.eval()
        self.beam_size = beam_size

    def forward(self, x):
        return self.model.decoder(self.model.encoder(x).repeat(self.beam_size, 1, 1))
"""


def test_what_has_parts_that_are_called_is_the_module_that_has_them(trace: TraceFixture) -> None:
    assert given(trace(PRELUDE + PARTS, "Search"))["init.model"] == "Net()"


def test_parts_that_are_called_are_modules_where_nothing_has_them(trace: TraceFixture) -> None:
    source = PARTS[PARTS.index("class Search") :]
    shown = "nn.ModuleDict({'decoder': nn.Identity(), 'encoder': nn.Identity()})"
    assert given(trace(PRELUDE + source, "Search"))["init.model"] == shown
