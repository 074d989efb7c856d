"""Stand-ins for modules, functions and lists that nobody gave: they are called and gone over as the code does it."""

import pytest
from conftest import Traced, TraceFixture

HEAD = "import torch\nfrom torch import nn\n"


def given(traced: Traced) -> dict[str, str]:
    return {i.name: i.spec for i in traced.trace.inputs}


STACKED = """
class Encoder(nn.Module):
    def __init__(self, layers, norm=None):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm

    def forward(self, x, mask=None):
        maps = []
        for layer in self.layers:
            x, scores = layer(x, mask=mask)
            maps.append(scores)
        return torch.relu(x), maps


class Decoder(nn.Module):
    def __init__(self, layers, skips=None):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.skips = nn.ModuleList(skips) if skips is not None else None

    def forward(self, x, memory):
        for i, layer in enumerate(self.layers):
            x = layer(x, memory, causal=i > 0)
        return torch.relu(x)


class Layer(nn.Module):
    def __init__(self, attention, width):
        super().__init__()
        self.attention = attention
        self.out = nn.Linear(width, width)

    def forward(self, x, mask=None):
        mixed, scores = self.attention(x, x, x, mask)
        return self.out(x + mixed), scores
"""


@pytest.mark.parametrize(
    ("name", "stands_in"),
    [
        pytest.param("Encoder", {"init.layers[0]": "lambda x, *others, **named: (x, x)"}, id="two results in a loop"),
        pytest.param("Decoder", {"init.layers[1]": "lambda x, *others, **named: x"}, id="several arguments in a loop"),
        pytest.param("Layer", {"init.attention": "lambda x, *others, **named: (x, x)"}, id="two results"),
    ],
)
def test_modules_take_and_give_what_the_code_passes_and_unpacks(
    name: str, stands_in: dict[str, str], trace: TraceFixture
) -> None:
    assert stands_in.items() <= given(trace(HEAD + STACKED, name)).items()


LISTS = """
class Scales(nn.Module):
    def __init__(self, radii, samples, channels):
        super().__init__()
        self.radii = radii
        self.samples = samples
        self.blocks = nn.ModuleList()
        for i in range(len(channels)):
            block = nn.ModuleList()
            width = 3
            for out in channels[i]:
                block.append(nn.Conv1d(width, out, 1))
                width = out
            self.blocks.append(block)

    def forward(self, x):
        parts = []
        for i, radius in enumerate(self.radii):
            y = x[:, :, : self.samples[i]] * radius
            for layer in self.blocks[i]:
                y = layer(y).relu()
            parts.append(y.amax(-1))
        return torch.cat(parts, 1)
"""


def test_lists_of_numbers_and_of_lists_by_how_a_loop_reads_them(trace: TraceFixture) -> None:
    inputs = given(trace(HEAD + LISTS, "Scales"))
    assert inputs["init.radii"] == "[2, 2]" and inputs["init.samples"] == "(2, 2)"
    assert inputs["init.channels"] == "([64, 64], [64, 64])"


CALLED = """
def in_chunks(function, size):
    def run(x):
        return torch.cat([function(x[i : i + size]) for i in range(0, x.shape[0], size)])
    return run


def rendered(points, network, size=1024):
    return in_chunks(network, size)(points) + 1


class Waves:
    def __init__(self, **options):
        functions = []
        for frequency in torch.linspace(1.0, 8.0, steps=options["count"]):
            for wave in options["waves"]:
                functions.append(lambda x, wave=wave, frequency=frequency: wave(x * frequency))
        self.functions = functions

    def embed(self, x):
        return torch.cat([function(x) for function in self.functions], -1)
"""


def test_tensors_that_are_defaults_of_functions_are_inputs_of_the_graph(trace: TraceFixture) -> None:
    traced = trace(HEAD + CALLED, "Waves.embed")
    assert any("frequency" in saved.name for saved in traced.trace.saved) or traced.inputs()


OF_FILE = """
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        return self.fc(x)


class TextEncoder(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.block = Block(width)

    def forward(self, x):
        return self.block(x)


class Score(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.fc = nn.Linear(width, 1)

    def forward(self, x, y):
        return self.fc(x * y)


class Siamese(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, x, y):
        return self.encoder(x) - self.encoder(y)


def similar(model, x: torch.Tensor, y):
    return model(x, y).sigmoid()


def encoded(encoder, x: torch.Tensor):
    return encoder(x).relu()


def handed_on(encoder, x: torch.Tensor, y):
    return encoded(encoder, x) - encoded(encoder, y)


def with_keyword(net, x: torch.Tensor):
    return net(x, hidden=None)
"""


@pytest.mark.parametrize(
    ("name", "parameter", "spec"),
    [
        pytest.param("similar", "model", "Score()", id="by the number of arguments"),
        pytest.param("encoded", "encoder", "TextEncoder()", id="by the name"),
        pytest.param("handed_on", "encoder", "TextEncoder()", id="handed on"),
        pytest.param("Siamese", "init.encoder", "TextEncoder()", id="stored and called"),
        pytest.param("with_keyword", "net", "lambda x, *others, **named: x", id="none takes the keyword"),
    ],
)
def test_what_is_called_may_be_a_module_of_the_file(trace: TraceFixture, name: str, parameter: str, spec: str) -> None:
    assert given(trace(HEAD + OF_FILE, name))[parameter] == spec
