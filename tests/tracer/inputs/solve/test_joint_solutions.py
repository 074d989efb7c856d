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


def test_a_module_is_called_with_what_it_is_told_besides(trace: TraceFixture) -> None:
    source = """
class Diffusion(nn.Module):
    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model
    def forward(self, x: Tensor, t: Tensor):
        return self.model(x, t).pow(2).mean() + t.float().mean()
"""
    assert given(trace(PRELUDE + source, "Diffusion"))["init.model"] == "lambda x, *others, **named: x"


def test_a_constructor_runs_once_whatever_its_numbers(trace: TraceFixture) -> None:
    source = """
made = []

class Net(nn.Module):
    def __init__(self, words=1000, width=512, positions=300):
        super().__init__()
        made.append(width)
        assert len(made) == 1
        self.words, self.positions = nn.Embedding(words, width), nn.Embedding(positions, width)
    def forward(self, tokens):
        return self.words(tokens) + self.positions.weight[: tokens.shape[1]]
"""
    assert "tokens" in given(trace(PRELUDE + source, "Net"))


def test_what_is_taken_by_number_is_no_single_number_as_another_of_its_name_is(trace: TraceFixture) -> None:
    source = """
class Tower(nn.Module):
    def __init__(self, layers: int):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(layers))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

class Net(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.first, self.second = Tower(layers[0]), Tower(layers[1])
    def forward(self, x):
        return self.second(self.first(x))
"""
    assert given(trace(PRELUDE + source, "Net"))["init.layers"] == "(2, 2)"
