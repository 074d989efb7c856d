"""Loops of hundreds of steps: a few are traced, unless the author says how many."""

from inline_snapshot import snapshot

PRELUDE = "import torch\nfrom torch import nn, Tensor\n"

RECURRENT = """
class Model(nn.Module):
    def __init__(self, size=24):
        super().__init__()
        self.cell = nn.Linear(2 * size, size)

    def forward(self, x):
        state = torch.zeros(x.shape[0], x.shape[2])
        states = x.new_zeros(x.shape)
        for t in range(x.shape[1]):
            state = torch.tanh(self.cell(torch.cat((x[:, t], state), 1)))
            states[:, t] = state
        return states
"""


def test_a_few_steps_stand_for_those_of_get_inputs(trace):
    offered = RECURRENT + "\ndef get_inputs():\n    return [torch.randn(3, 300, 24)]\n"
    traced = trace(PRELUDE + offered, "Model")
    assert traced.inputs() == snapshot(["x: f32[3, 5, 24] · convention"])
    assert traced.outcome.inputs[-1].detail == snapshot(
        "get_inputs(), with 5 instead of 300: a long loop iterates over it"
    )


def test_dimensions_of_the_same_size_stay_the_same(trace):
    offered = RECURRENT + "\ndef get_inputs():\n    return [torch.randn(300, 300, 24)]\n"
    assert trace(PRELUDE + offered, "Model").inputs() == snapshot(["x: f32[5, 5, 24] · convention"])


def test_a_size_that_the_module_has_too_stays(trace):
    offered = RECURRENT.replace("size=24", "size=300") + "\ndef get_inputs():\n    return [torch.randn(3, 300, 300)]\n"
    assert trace(PRELUDE + offered, "Model").inputs() == snapshot(["x: f32[3, 5, 300] · convention"])


def test_what_the_author_says_is_traced(trace):
    source = """
# fx: x=f32[2, 260]
def total(x: Tensor):
    state = x[:, 0]
    for t in range(x.shape[1]):
        state = (state * 0.5 + x[:, t]).tanh()
    return state
"""
    traced = trace(PRELUDE + source, "total")
    assert traced.inputs() == ["x: f32[2, 260] · comment"]
    assert traced.graph("forward").count("aten.tanh.default") == 260


def test_loops_that_are_not_long_are_traced_whole(trace):
    offered = RECURRENT + "\ndef get_inputs():\n    return [torch.randn(3, 100, 24)]\n"
    assert trace(PRELUDE + offered, "Model").inputs() == snapshot(["x: f32[3, 100, 24] · convention"])


GENERATE = """
class Model(nn.Module):
    def __init__(self, width=64, vocabulary=32):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(20))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, idx):
        x = self.embed(idx)
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return self.head(x)

    def generate(self, idx, max_new_tokens{default}):
        for _ in range(max_new_tokens):
            idx = torch.cat((idx, self(idx)[:, -1].argmax(-1, keepdim=True)), 1)
        return idx
"""


def test_a_number_of_steps_that_nobody_gave_is_small(trace):
    traced = trace(PRELUDE + GENERATE.replace("{default}", ""), "Model.generate")
    assert traced.inputs() == snapshot(["idx: i64[4, 8] · search", "max_new_tokens: 2 · search"])
    assert traced.outcome.inputs[-1].detail == snapshot("2 steps: a loop iterates over it")
    assert traced.graph("inference").count("aten.argmax.default") == 2


def test_a_default_of_hundreds_of_steps_is_shortened(trace):
    traced = trace(PRELUDE + GENERATE.replace("{default}", "=200"), "Model.generate")
    assert traced.inputs() == snapshot(["idx: i64[4, 8] · search", "max_new_tokens: 2 · search"])
    assert traced.outcome.inputs[-1].detail == snapshot("2 steps instead of 200: a loop iterates over it")


def test_a_comment_says_how_many_steps(trace):
    traced = trace(
        PRELUDE + GENERATE.replace("{default}", ""), "Model.generate", comment="idx=i64[2, 3], max_new_tokens=6"
    )
    assert traced.graph("inference").count("aten.argmax.default") == 6


GENERATED_BY_A_CALL = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(50, 16), nn.Linear(16, 50)

    def generate(self, ids, new_words):
        for _ in range(new_words):
            following = self.head(self.words(ids[:, -1:])).argmax(-1)
            ids = torch.cat([ids, following], 1)
        return ids

if __name__ == "__main__":
    Model().generate(torch.zeros(1, 4, dtype=torch.long), 5000)
"""


def test_hundreds_of_steps_of_a_call_are_few(trace):
    traced = trace(PRELUDE + GENERATED_BY_A_CALL, "Model.generate")
    assert traced.inputs() == snapshot(["ids: i64[1, 4] · call site", "new_words: 2 · search"])
    assert traced.outcome.inputs[-1].detail == "2 steps instead of 5000: a loop iterates over it"
