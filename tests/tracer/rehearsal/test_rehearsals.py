"""Scripts as a whole: followed to their end on fake tensors, with real autograd, two turns of each training loop."""

import pytest
from inline_snapshot import snapshot

from fx_lsp.model import Trace
from fx_lsp.tracing.analysis import analyse

HEAD = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Net(nn.Module):
    def __init__(self, width=20, classes=4):
        super().__init__()
        self.body, self.head = nn.Linear(width, 32), nn.Linear(32, classes)

    def forward(self, x):
        return self.head(F.relu(self.body(x)))

"""
TRAIN = """
def train(model, loader, epochs=50):
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(epochs):
        total = 0.0
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        print(epoch, total / len(loader))

if __name__ == "__main__":
    data = TensorDataset(torch.randn(70, 20), torch.randint(0, 4, (70,)))
    train(Net(), DataLoader(data, batch_size=32, shuffle=True))
"""


@pytest.fixture
def wrong(trace):
    """What is wrong with a script: how sure that is, where, and why; None where it runs."""

    def run(source, head=HEAD):
        traced = trace(head + source, "__main__")
        if isinstance(traced.outcome, Trace):
            return None
        failure = traced.failure
        if failure.kind == "nothing":
            return None
        return failure.severity, traced.at(failure.span), failure.message.split(" (")[0]

    return run


def test_a_script_that_runs_shows_nothing(wrong):
    assert wrong(TRAIN) is None


def test_a_dataset_whose_files_are_missing_is_not_the_scripts_mistake(wrong):
    files = TRAIN.replace(
        "data = TensorDataset(torch.randn(70, 20), torch.randint(0, 4, (70,)))", "data = Files('data')"
    )
    kind = """
import glob
from torch.utils.data import Dataset

class Files(Dataset):
    def __init__(self, root):
        self.files = sorted(glob.glob(root + "/*.pt"))

    def __getitem__(self, index):
        return torch.load(self.files[index]), 1

    def __len__(self):
        return len(self.files)
"""
    assert wrong(kind + files) is None
    assert wrong(TRAIN.replace("shuffle=True", "shuffle=True, batch_sampler=3"))[0] == "error"


def test_a_model_that_moves_once_its_optimizer_exists_is_trained(wrong):
    moved = TRAIN.replace("(model.parameters())\n    for", "(model.parameters())\n    model.to('cuda')\n    for")
    assert moved != TRAIN
    assert wrong(moved.replace("model(x), y", "model(x.to('cuda')), y.to('cuda')")) is None


def test_a_script_that_needs_a_gpu_runs_as_with_one(wrong):
    source = """
def sample(count):
    return torch.cuda.FloatTensor(count, 20)

net = Net()
if torch.cuda.is_available():
    net.cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range(10):
    loss = net(sample(4)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    assert wrong(source) is None
    assert wrong(source.replace("(count, 20)", "(count, 21)"))[0] == "error"


def test_a_second_turn_meets_what_the_first_left(wrong):
    source = TRAIN.replace("loss = F", "total = total + F").replace("loss.backward()", "total.backward()")
    source = source.replace("total += loss.item()", "pass")
    severity, where, why = wrong(source)
    assert (severity, where) == ("error", "total.backward()")
    assert "backward through the graph a second time" in why


def test_what_comes_after_backward_is_run(wrong):
    source = TRAIN.replace("clip_grad_norm_(model.parameters(), 1.0)", "clip_grad_norm_(optimizer, 1.0)")
    severity, where, why = wrong(source)
    assert (severity, where, why) == snapshot(
        ("error", "nn.utils.clip_grad_norm_(optimizer, 1.0)", "TypeError: 'Adam' object is not iterable")
    )


def test_what_comes_after_the_call_of_a_target_is_run(wrong):
    source = "hidden = Net()(torch.randn(8, 20))\nfor row in [hidden.softmax(1)]:\n    row @ torch.randn(8, 2)\n"
    assert wrong(source) == snapshot(
        (
            "error",
            "row @ torch.randn(8, 2)",
            "matrices of 8×4 and 8×2 cannot be multiplied: the inner sizes 4 and 8 differ",
        )
    )


def test_an_optimizer_changes_parameters_in_place(wrong):
    source = """
critic, actor = Net(20, 1), Net(4, 20)
optimizer = torch.optim.Adam(critic.parameters())
for _ in range(3):
    action = actor(torch.randn(8, 4))
    value, other = critic(action), critic(action.detach()).mean()
    other.backward()
    optimizer.step()
    (-value.mean()).backward()
"""
    severity, where, why = wrong(source)
    assert (severity, where) == ("error", "(-value.mean()).backward()")
    assert "`critic.head.weight`" in why and "`optimizer.step()` in line 21 has changed it in place" in why
    assert wrong(source.replace("    optimizer.step()\n", "")) is None


def test_the_last_batch_is_what_is_left(wrong):
    normalized = HEAD.replace("self.head(F.relu(self.body(x)))", "self.head(self.norm(self.body(x)))")
    normalized = normalized.replace("super().__init__()", "super().__init__()\n        self.norm = nn.BatchNorm1d(32)")
    assert wrong(TRAIN, normalized) is None
    severity, where, why = wrong(TRAIN.replace("70", "65"), normalized)
    assert (severity, where) == ("error", "self.norm(self.body(x))")
    assert "more than 1 value per channel" in why
    assert wrong(TRAIN.replace("70", "65").replace("shuffle=True", "drop_last=True"), normalized) is None


def test_labels_that_are_known_lie_in_the_range_of_the_classes(wrong):
    labels = TRAIN.replace("torch.randint(0, 4, (70,))", "torch.arange(70) % 4 + 1")
    severity, where, _ = wrong(labels)
    assert (severity, where) == ("error", "F.cross_entropy(model(x), y)")
    assert wrong(labels.replace("% 4 + 1", "% 4")) is None


def test_a_gradient_that_nothing_computed_is_none(wrong):
    source = "x = torch.randn(4, 20, requires_grad=True) * 2\nNet()(x).sum().backward()\nfor _ in [1]:\n    "
    assert wrong(source + "print(x.grad.abs())\n") == snapshot(
        ("error", "x.grad.abs", "AttributeError: 'NoneType' object has no attribute 'abs'")
    )


def test_a_tensor_with_a_gradient_is_no_array(wrong):
    source = "def show(x):\n    return x.numpy().max()\n\nshow(Net()(torch.randn(8, 20)))\n"
    assert wrong(source) == snapshot(
        ("error", "x.numpy()", "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead")
    )
    assert wrong(source.replace(".numpy()", ".detach().numpy()")) is None


def test_what_the_code_catches_is_no_error(wrong):
    source = "def fit(x):\n    return x @ torch.randn(3, 3)\n\n"
    assert wrong(source + "fit(torch.randn(4, 4))\n") is not None
    assert (
        wrong(
            source + "for _ in [1]:\n    try:\n        fit(torch.randn(4, 4))\n    except RuntimeError:\n        pass\n"
        )
        is None
    )


def test_what_needs_data_that_is_not_here_is_left_out(wrong):
    absent = TRAIN.replace("torch.randint(0, 4, (70,))", "torch.load('/nowhere/labels.pt')")
    assert wrong(absent) is None
    assert wrong(absent + "    print(missing)\n") is None
    listed = "rows = []\nfor row in open('/nowhere/rows'):\n    rows.append(torch.zeros(3))\n"
    listed += "for _ in [1]:\n    torch.stack(rows)\n"
    assert wrong(listed) is None


def test_a_value_of_data_is_no_size(wrong):
    source = (
        "n = int(Net()(torch.randn(8, 20)).sum().item())\nfor _ in [1]:\n    torch.randn(n, 3) @ torch.randn(4, 3)\n"
    )
    assert wrong(source) is None
    known = source.replace("int(Net()(torch.randn(8, 20)).sum().item())", "3")
    assert wrong(known) is not None


def test_what_a_loop_collects_that_was_cut_short_is_no_evidence(wrong):
    source = TRAIN.replace("total = 0.0", "losses.append(0)").replace("total += ", "").replace("total / len", "len")
    source = source.replace("for epoch", "losses = []\n    for epoch")
    source = source.replace("\nif __name__", "    print(torch.zeros(len(losses)) + torch.zeros(epochs))\n\nif __name__")
    assert wrong(source) is None


COLUMNS = """
def report(model, x, y):
    with torch.no_grad():
        return PAIRS

report(Net(classes=1), torch.randn(50, 20), torch.randn(50))
"""


@pytest.mark.parametrize(
    ("pairs", "where"),
    [
        ("(model(x) - y).abs().mean()", "model(x) - y"),
        ("(model(x).round() == y).sum()", "model(x).round() == y"),
        ("(y - x[:, 3:4]).pow(2).sum()", "y - x[:, 3:4]"),
        ("(x.mean(1, keepdim=True) - y).abs().sum()", "x.mean(1, keepdim=True) - y"),
    ],
)
def test_a_column_meets_a_row(wrong, pairs, where):
    assert wrong(COLUMNS.replace("PAIRS", pairs))[:2] == ("warning", where)


@pytest.mark.parametrize(
    "pairs",
    [
        "(model(x).squeeze(1) - y).abs().mean()",
        "(y[:, None] - y).abs().mean()",
        "(model(x).view(-1, 1) == y).sum()",
        "(x.pow(2).sum(1, keepdim=True) + x.pow(2).sum(1) - 2 * x @ x.T).sum()",
        "torch.maximum(x[:, :1], x[:, 0]).mean(dim=1)",
    ],
)
def test_pairs_that_are_meant(wrong, pairs):
    assert wrong(COLUMNS.replace("PAIRS", pairs)) is None


def test_what_is_imported_is_no_script():
    for source in (
        HEAD,
        HEAD + "default = Net()\n",
        HEAD + "def test_net():\n    Net()\n\nif __name__ == '__main__':\n    test_net()\n",
    ):
        assert "__main__" not in analyse("/user.py", source, ()).targets
    assert "__main__" in analyse("/user.py", HEAD + TRAIN, ()).targets


def test_a_number_of_a_tensor_that_is_formatted(wrong):
    source = "w = torch.randn(3)\nfor i, v in enumerate(w):\n    print('{:+.2f} x^{}'.format(v, i), f'{v:.3f}')\n"
    assert wrong(source) is None


def test_a_branch_that_an_option_without_a_value_would_choose(wrong):
    source = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--stage")
args = parser.parse_args()

def rows():
    if args.stage == "first":
        data = torch.randn(4, 20)
    elif args.stage == "second":
        data = torch.randn(8, 20)
    return data

print(Net()(rows()))
"""
    assert wrong(source) is None
    severity, where, _ = wrong(
        source.replace('parser.add_argument("--stage")', "args_of = parser").replace("args.stage", "__name__")
    )
    assert (severity, where) == ("error", "data")


STEP = "            optimizer.step()\n"
CONSTRUCTED = "torch.optim.Adam(model.parameters())"


@pytest.mark.parametrize(
    ("old", "new", "severity", "where", "why"),
    [
        ("            optimizer.zero_grad()\n", "", "warning", "optimizer.step()", "those of the step before"),
        (
            "    for e",
            "    model.head = nn.Linear(32, 8)\n    for e",
            "warning",
            CONSTRUCTED,
            "old `model.head.weight`",
        ),
        (
            "    for e",
            "    model.body = nn.Sequential(model.body, nn.Linear(32, 32))\n    for e",
            "warning",
            CONSTRUCTED,
            "`model.body.1.weight` is newer",
        ),
        (
            "model(x), y",
            "model.head(model.body(x).relu().detach()), y",
            "information",
            "model.body(x).relu().detach()",
            "`model.body.weight` is in an optimizer and gets no gradient",
        ),
    ],
)
def test_a_step_that_trains_something_else(wrong, old, new, severity, where, why):
    assert TRAIN.count(old) == 1
    shown = wrong(TRAIN.replace(old, new))
    assert shown[:2] == (severity, where)
    assert why in shown[2]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "            optimizer.zero_grad()\n",
            "            if epoch % 4 == 3:\n                optimizer.zero_grad()\n",
        ),
        (STEP, STEP + "            [p.grad.data.zero_() for p in model.parameters()]\n"),
        (
            "    for e",
            "    model.head = nn.Linear(32, 8)\n    optimizer = torch.optim.SGD(model.parameters())\n    for e",
        ),
        ("    for e", "    model.head.requires_grad_(False)\n    for e"),
        ("model(x), y", "model.head(model.body(x).relu().detach() if epoch < 9 else model.body(x)), y"),
        ("model(x), y", "model(x), y) + 0 * F.mse_loss(model.body(x).detach(), model.body(x)"),
        ("(model.parameters())", "(model.head.parameters())"),
    ],
)
def test_a_step_that_trains_what_it_should(wrong, old, new):
    assert TRAIN.count(old) in (1, 2)
    assert wrong(TRAIN.replace(old, new, 1)) is None
