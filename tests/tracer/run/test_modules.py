"""Modules as people build them: recurrent layers, copies, moves, state, other devices, several in one file."""

from inline_snapshot import snapshot

PRELUDE = "import copy\nimport torch\nfrom torch import nn, Tensor\n"


def stages(traced):
    return {s.name: s.ops for s in traced.outcome.stages}


def targets(traced, stage):
    return [n.target for n in traced.stage(stage).nodes if "rnn" in n.target]


def test_a_recurrent_layer_over_hundreds_of_steps_is_one_operation(trace):
    for layer in ("nn.LSTM(16, 32, 2, batch_first=True, bidirectional=True)", "nn.GRU(16, 32)", "nn.RNN(16, 32)"):
        traced = trace(
            PRELUDE
            + f"""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = {layer}
    def forward(self, x):
        return self.layer(x)[0]
""",
            "Net",
            comment="x=f32[4, 512, 16]",
        )
        assert targets(traced, "forward") == ["aten._cudnn_rnn.default"]
        assert targets(traced, "backward") == ["aten._cudnn_rnn_backward.default"]
        assert "recurrent layers are shown as the single operation" in " ".join(traced.outcome.notes)


def test_modules_are_copied_moved_and_tied(trace):
    traced = trace(
        PRELUDE
        + """
class Net(nn.Module):
    def __init__(self, vocabulary=50, dim=16):
        super().__init__()
        layer = nn.Linear(dim, dim)
        self.layers = nn.ModuleList(copy.deepcopy(layer) for _ in range(2)).to("cpu").double()
        self.embed = nn.Embedding(vocabulary, dim)
        self.head = nn.Linear(dim, vocabulary, bias=False)
        self.head.weight = self.embed.weight
        self.double()
    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)
""",
        "Net",
    )
    given = [n.name for n in traced.stage("joint").nodes if n.op == "placeholder"]
    assert given == snapshot(
        ["layers_0_weight", "layers_0_bias", "layers_1_weight", "layers_1_bias", "embed_weight", "ids", "grad_out"]
    )


def test_what_a_call_leaves_in_a_module_is_undone(trace):
    traced = trace(
        PRELUDE
        + """
class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.zeros(4, 8)
        self.seen = []
        self.mix = nn.Linear(8, 8)
    def forward(self, x):
        self.hidden = torch.tanh(self.mix(x) + self.hidden)
        self.seen.append(self.hidden)
        return self.hidden, len(self.seen)
""",
        "Cell",
        comment="x=f32[4, 8]",
    )
    assert stages(traced) == snapshot({"joint": 15, "forward": 6, "backward": 10})
    assert [n.name for n in traced.stage("forward").nodes if n.op == "placeholder"] == snapshot(
        ["mix_weight", "mix_bias", "hidden", "x"]
    )


def test_what_cannot_be_differentiated_keeps_its_inference_graph(trace):
    traced = trace(
        PRELUDE
        + """
def g(x: Tensor):
    z = torch.exp(x)
    z += 1
    return z
""",
        "g",
    )
    assert stages(traced) == snapshot({"inference": 2})
    assert traced.outcome.notes[0].startswith("it has no backward graph: backward needs the result of `Exp`")


def test_code_for_a_gpu(trace):
    traced = trace(
        PRELUDE
        + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8, device="cuda").cuda()
    def forward(self, x):
        return self.fc(x.cuda()) + torch.ones(8, device=torch.device("cuda", 0))
""",
        "Net",
    )
    assert set(stages(traced)) == {"joint", "forward", "backward"}
