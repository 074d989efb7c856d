"""Training and evaluation steps: the body of a loop over batches, with what comes before it, and never the loop."""

import pytest
from inline_snapshot import snapshot

NET = """
import argparse
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

class Net(nn.Module):
    def __init__(self, width, classes=4):
        super().__init__()
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        return self.fc(x)
"""

SCRIPT = (
    NET
    + """
def train(model, loader, optimizer, device, epoch):
    model.train()
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if i % 10 == 0:
            print(epoch, i, loss.item(), undefined)

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=25)
    args = parser.parse_args()
    data = DATA
    model = Net(20)
    optimizer = torch.optim.SGD(model.parameters(), lr=wrong)
    for epoch in range(10):
        train(model, DataLoader(data, batch_size=args.batch, shuffle=True), optimizer, "cpu", epoch)

if __name__ == "__main__":
    main()
"""
)


def script(data: str) -> str:
    return SCRIPT.replace("DATA", data)


def test_the_batch_is_that_of_the_loader(trace):
    traced = trace(script("TensorDataset(torch.randn(100, 20), torch.randint(0, 4, (100,)))"), "train.step")
    assert traced.inputs() == snapshot(["x: f32[25, 20] · call site", "y: i64[25] · call site"])
    assert traced.graph("forward") == snapshot("""\
model_fc_weight: f32[4, 20] = placeholder
model_fc_bias: f32[4] = placeholder
x: f32[25, 20] = placeholder
y: i64[25] = placeholder
t: f32[20, 4](1, 20) = aten.t.default(model_fc_weight)
addmm: f32[25, 4] = aten.addmm.default(model_fc_bias, x, t)
log_softmax: f32[25, 4] = aten._log_softmax.default(addmm, 1, False)
nll_loss_forward: (f32[], f32[]) = aten.nll_loss_forward.default(log_softmax, y, None, 1, -100)
loss: f32[] = operator.getitem(nll_loss_forward, 0)
getitem_1: f32[] = operator.getitem(nll_loss_forward, 1)
return (loss, x, y, log_softmax, getitem_1)\
""")
    assert [stage.name for stage in traced.trace.stages] == ["joint", "forward", "backward"]
    nodes = {node.name: node for node in traced.stage("forward").nodes}
    assert traced.at(nodes["loss"].span) == "F.cross_entropy(model(x), y)"


def test_without_the_data_the_batch_is_searched_for(trace):
    traced = trace(script("TensorDataset(*torch.load('/nowhere/data.pt'))"), "train.step")
    assert traced.inputs() == snapshot(["x: f32[8, 20] · search", "y: i64[8] · search"])


def test_a_batch_that_does_not_fit_is_an_error_where_it_fails(trace):
    traced = trace(script("TensorDataset(torch.randn(100, 20), torch.randint(0, 4, (100, 1)))"), "train.step")
    failure = traced.failure
    assert failure.severity == "error"
    assert traced.at(failure.span) == "F.cross_entropy(model(x), y)"
    assert [f"{i.name}: {i.spec} · {i.detail}" for i in failure.inputs] == snapshot(
        ["x: f32[25, 20] · line 18", "y: i64[25, 1] · line 18"]
    )


def test_a_loop_under_the_guard_goes_through_the_data_sets_own_samples(trace):
    traced = trace(
        NET
        + """
class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = torch.from_numpy(self.rows[index])
        return {"x": row[:-1].float(), "y": row[-1].long()}

if __name__ == "__main__":
    model = Net(8)
    print(undefined)
    for epoch in range(3):
        for batch in DataLoader(Rows(np.zeros((50, 9))), batch_size=16, num_workers=4):
            loss = F.cross_entropy(model(batch["x"]), batch["y"])
            loss.backward()
""",
        "step",
    )
    assert traced.inputs() == snapshot(["x: f32[16, 8] · call site", "y: i64[16] · call site"])


def test_an_evaluation_has_no_backward(trace):
    traced = trace(
        NET
        + """
model = Net(8)
with torch.no_grad():
    correct = 0
    for x, y in read("/nowhere/data.csv"):
        correct += (model(x).argmax(1) == y).sum().item()
print(correct)
""",
        "step",
    )
    assert [stage.name for stage in traced.trace.stages] == ["inference"]
    assert traced.trace.outputs == ("i64[]",)


def test_what_needs_data_that_is_not_here_is_an_input(trace):
    traced = trace(
        NET
        + """
table = np.load("/nowhere/table.npy")
weight = torch.from_numpy(table[0])
features = torch.from_numpy(table[1:])
model = Net(8)
while True:
    loss = (model(features) * weight).sum()
    loss.backward()
""",
        "step",
    )
    assert [i.name for i in traced.trace.inputs] == snapshot(["features", "weight"])


def test_a_model_that_cannot_be_made_is_said(trace):
    traced = trace(
        NET
        + """
model = Net(len(open("/nowhere/words").read()))
for x in loader:
    model(x).sum().backward()
""",
        "step",
    )
    assert traced.failure.severity == "information"
    assert traced.failure.message == snapshot(
        "the code of the file before the loop cannot be run: the code reads '/nowhere/words': No such file or directory"
    )


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "loss = F.cross_entropy(model(x), y, reduction='none')",
            snapshot("grad can be implicitly created only for scalar outputs, not for [16]"),
        ),
        ("loss = 3.0", snapshot("AttributeError: 'float' object has no attribute 'backward'")),
        (
            "loss = F.cross_entropy(model(x), y).detach()",
            snapshot("element 0 of tensors does not require grad and does not have a grad_fn"),
        ),
    ],
)
def test_a_loss_that_has_no_backward(trace, statement: str, message: str):
    traced = trace(
        NET
        + f"""
model = Net(8)
for x, y in DataLoader(TensorDataset(torch.randn(64, 8), torch.zeros(64).long()), batch_size=16):
    {statement}
    loss.backward()
""",
        "step",
    )
    assert traced.failure.severity in ("error", "warning")
    assert traced.failure.message == message
    assert traced.at(traced.failure.span) == "loss.backward()"


def test_nothing_is_written(trace, tmp_path):
    trace(
        NET
        + """
log = open("log.txt", "w")
model = Net(8)
for x in loader:
    loss = model(x).sum()
    log.write("x")
    loss.backward()
""",
        "step",
    )
    assert not (tmp_path / "log.txt").exists()


def test_a_function_that_calls_backward_is_a_step(trace):
    traced = trace(
        NET
        + """
def update(model, x, y, optimizer):
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()

if __name__ == "__main__":
    model = Net(8)
    for x, y in [(torch.randn(6, 8), torch.randn(6, 4))]:
        update(model, x, y, torch.optim.Adam(model.parameters()))
""",
        "update",
    )
    assert [i for i in traced.inputs() if i[:2] in ("x:", "y:")] == snapshot(
        ["x: f32[6, 8] · call site", "y: f32[6, 4] · call site"]
    )


def test_a_function_whose_model_is_not_there_is_no_error(trace):
    traced = trace(
        NET
        + """
features, labels = np.load("/nowhere/features.npy"), np.load("/nowhere/labels.npy")
model = np.load("/nowhere/model.npy", allow_pickle=True).item()

def train(epoch):
    loss = F.cross_entropy(model(features), labels)
    loss.backward()

for epoch in range(10):
    train(epoch)
""",
        "train",
    )
    assert traced.failure.severity == "information"
    assert traced.failure.message.startswith("train cannot be run: ")


IMAGES = (
    NET
    + """
options = argparse.ArgumentParser()
options.add_argument("--img_size", type=int, default=48)
options.add_argument("--channels", type=int, default=1)
opt = options.parse_args()

class Critic(nn.Module):
    def __init__(self, channels=opt.channels, size=opt.img_size):
        super().__init__()
        self.conv = nn.Conv2d(channels, 8, 3, 2, 1)
        self.out = nn.Linear(8 * (size // 2) ** 2, 1)

    def forward(self, *images):
        return self.out(F.relu(self.conv(torch.cat(images, 1))).flatten(1))

class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(opt.channels * opt.img_size ** 2, 1)

    def forward(self, image):
        return self.out(image.view(image.size(0), -1))

model = MODEL
loader = DataLoader(torch.load("/nowhere/images.pt"), batch_size=16)
Tensor = torch.FloatTensor

for images, others in loader:
    real = torch.autograd.Variable(images.type(Tensor))
    LOSS
    loss.backward()
"""
)


@pytest.mark.parametrize(
    ("model", "loss", "expected"),
    [
        ("Critic()", "loss = model(real).mean()", {"images": "f32[4, 1, 48, 48]"}),
        ("Flat()", "loss = model(real).mean()", {"images": "f32[4, 1, 48, 48]"}),
        (
            "Critic(6)",
            "loss = model(real, others).mean()",
            {"images": "f32[4, 3, 48, 48]", "others": "f32[4, 3, 48, 48]"},
        ),
    ],
)
def test_images_of_the_size_that_the_program_has(trace, model, loss, expected):
    """Here the model is given what a variable makes of the batch, and the numbers are options of the program."""
    traced = trace(IMAGES.replace("MODEL", model).replace("LOSS", loss), "step")
    images = {i.name: i.spec for i in traced.trace.inputs if i.name in expected}
    assert images == expected, traced.outcome


def test_a_batch_that_leaves_the_trace_is_no_number_of_the_model(trace):
    """NumPy takes the batch as a number, and a loss then compares labels with what that number made."""
    traced = trace(
        NET
        + """
def loss(x: torch.Tensor, labels: torch.Tensor):
    count, width = x.shape
    noise = torch.from_numpy(np.random.normal(0, 1, (count, 5)).astype(np.float32))
    return F.cross_entropy(Net(width, 5)(x) + noise, labels)
""",
        "loss",
    )
    assert [remark.message for remark in traced.trace.remarks] == []


def test_a_program_that_takes_too_long_is_told(trace, monkeypatch):
    monkeypatch.setattr("fx_lsp.tracer.world.world.PROGRAM_SECONDS", 0.2)
    source = script("TensorDataset(torch.randn(100, 20), torch.randint(0, 4, (100,)))")
    source = source.split("def main")[0] + "while True:\n    model = Net(20)\n    break_ = sum(range(10**5))\n"
    source += (
        "\nfor x, y in [(torch.randn(2, 20), torch.zeros(2).long())]:\n    F.cross_entropy(model(x), y).backward()\n"
    )
    failure = trace(source, "step").failure
    assert failure.message == snapshot(
        "the code of the file before the loop cannot be run: user.py was not followed to its end: it takes too long"
    )


RAGGED = """
class Words(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return torch.arange(3 + index % 5), index % 4

def collate(samples):
    words, labels = zip(*samples)
    return JOIN, torch.tensor(labels)

def main():
    embed, head = nn.Embedding(10, 8), Net(8)
    for words, labels in DataLoader(Words(), batch_size=16, collate_fn=collate):
        loss = F.cross_entropy(head(embed(words).sum(1)), labels)
        loss.backward()

if __name__ == "__main__":
    main()
"""


def test_samples_that_make_no_batch_are_an_error_where_they_are_joined(trace):
    padded = trace(NET + RAGGED.replace("JOIN", "nn.utils.rnn.pad_sequence(words, batch_first=True)"), "main.step")
    assert padded.inputs()[0] == "words: i64[16, 7] · call site"
    stacked = trace(NET + RAGGED.replace("JOIN", "torch.stack(words)"), "main.step")
    assert stacked.failure.severity == "error"
    assert stacked.failure.message.startswith("stack expects each tensor to be equal size")
    assert stacked.at(stacked.failure.span) == "torch.stack(words)"


FROM_DATA = (
    NET
    + """
class Trainer:
    def __init__(self, rows):
        self.rows = rows
        self.net = Net(20)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.start_logging()

    def start_logging(self):
        from no_such_logger import Writer
        self.writer = Writer()

    def train(self):
        batches = iter(self.rows)
        for step in range(1000):
            GET
            loss = F.cross_entropy(self.net(x.float()), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

def read():
    return np.load("rows.npy")

def get_batch(split):
    data = np.memmap(f"{split}.bin", dtype=np.uint16, mode="r")
    return torch.from_numpy(data[:80].reshape(4, 20)), torch.zeros(4)

if __name__ == "__main__":
    Trainer(read()).train()
"""
)


@pytest.mark.parametrize(
    "get",
    [
        "x, labels = next(batches)",
        "try:\n                x, labels = next(batches)\n"
        "            except StopIteration:\n                batches = iter(self.rows)\n"
        "                x, labels = next(batches)",
        "x, labels = get_batch('train')",
        "x, labels = self.rows.sample(batch_size=32)",
    ],
)
def test_what_a_step_gets_from_data_is_an_input_of_it(get: str, trace):
    traced = trace(FROM_DATA.replace("GET", get), "Trainer.train.step")
    assert sorted(f"{i.name}: {i.spec}" for i in traced.trace.inputs) == snapshot(["labels: i64[4]", "x: f32[4, 20]"])


DRAWN = (
    NET
    + """
class Sums(Dataset):
    def __init__(self, digits):
        order = torch.randperm(100, generator=torch.Generator().manual_seed(0))
        self.numbers, self.digits = order[:80], digits

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, index):
        a, b = divmod(self.numbers[index].item(), 10)
        return torch.tensor([float(a), float(b)]), torch.tensor(a + b)

def endless(loader):
    while True:
        for batch in loader:
            yield batch

def main():
    loader = DataLoader(Sums(2), batch_size=16)
    net, batches = Net(2, 20), ITERATOR
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(1000):
        STATEMENT
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

if __name__ == "__main__":
    main()
"""
)


@pytest.mark.parametrize(
    ("iterator", "statement"),
    [
        ("iter(loader)", "x, y = next(batches)"),
        ("endless(loader)", "x, y = next(batches)"),
        (
            "iter(loader)",
            "if step % len(loader) == 0:\n            batches = iter(loader)\n        x, y = next(batches)",
        ),
        (
            "iter(loader)",
            "try:\n            batch = next(batches)\n        except StopIteration:\n"
            "            batches = iter(loader)\n            batch = next(batches)\n        x, y = batch",
        ),
        ("None", "x, y = next(iter(loader))"),
    ],
)
def test_what_a_step_draws_from_an_iterator_is_its_batch(iterator: str, statement: str, trace):
    traced = trace(DRAWN.replace("ITERATOR", iterator).replace("STATEMENT", statement), "main.step")
    batch = [i.spec for i in traced.trace.inputs if i.source == "call site"]
    assert batch == ["f32[16, 2]", "i64[16]"]


def test_what_a_model_gives_is_no_data(trace):
    get = "x = torch.zeros(4, 20)\n            labels = self.writer.predict(x)"
    assert trace(FROM_DATA.replace("GET", get), "Trainer.train.step").failure.message == snapshot(
        "it needs a value that is unavailable: ModuleNotFoundError: No module named 'no_such_logger'"
    )


def test_a_function_that_trains_on_what_the_file_reads(trace):
    source = (
        NET
        + """
parser = argparse.ArgumentParser()
parser.add_argument("--hidden", type=int, default=16)
args = parser.parse_args()
args.cuda = torch.cuda.is_available()
rows, labels, chosen = torch.load("/nowhere/rows.pt")
model = Net(rows.shape[1], classes=labels.max().item() + 1)

def train(epoch):
    loss = F.cross_entropy(model(rows)[chosen], labels[chosen])
    loss.backward()
    print(epoch, loss.item())

for epoch in range(10):
    train(epoch)
"""
    )
    traced = trace(source, "train")
    assert traced.inputs() == snapshot(
        ["epoch: 0 · call site", "rows: f32[4, 64] · search", "chosen: i64[32] · search", "labels: i64[1001] · search"]
    )
    assert [note for note in traced.trace.notes if "assumed" in note] == snapshot(
        ["the data is missing; assumed: rows_size=64, classes=1000"]
    )


def test_losses_and_models_around_a_step_say_what_its_inputs_are(trace):
    source = (
        NET
        + """
from torch.nn.parallel import DataParallel
model = DataParallel(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.LazyLinear(4)))
criterion = nn.CrossEntropyLoss()

def train():
    for images, target in torch.load("/nowhere/loader.pt"):
        loss = criterion(model(images), target)
        loss.backward()

train()
"""
    )
    assert trace(source, "train.step").inputs() == snapshot(
        ["images: f32[4, 3, 32, 32] · search", "target: i64[4] · search"]
    )


def test_labels_that_are_filled_anew_after_a_backward(trace):
    """In the program the gradients of the first loss are there by then."""
    source = (
        NET
        + """
model, criterion = Net(8, 1), nn.BCEWithLogitsLoss()
for x in [torch.randn(6, 8)]:
    label = torch.full((6, 1), 1.0)
    real = criterion(model(x), label)
    real.backward()
    label.fill_(0.0)
    fake = criterion(model(x.flip(0)), label)
    fake.backward()
"""
    )
    traced = trace(source, "step")
    assert traced.trace.outputs == snapshot(("f32[]", "f32[]"))


def test_losses_in_a_list(trace):
    source = (
        NET
        + """
model = Net(8)
for x, y in [(torch.randn(6, 8), torch.randint(0, 4, (6,)))]:
    loss = F.cross_entropy(model(x), y)
    torch.autograd.backward([loss])
"""
    )
    traced = trace(source, "step")
    assert traced.trace.outputs == snapshot(("f32[]",))
    assert trace(source.replace("[loss]", "loss"), "step").trace.outputs == traced.trace.outputs


def test_numbers_that_are_added_to_options_elsewhere_are_made_up(trace):
    source = (
        NET
        + """
def prepare(opt):
    opt.vocab_size = len(open("/nowhere/vocabulary").read().split())
    return opt

def train(opt, batches):
    model = nn.Embedding(opt.vocab_size, 8)
    for tokens in batches:
        model(tokens).sum().backward()

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data")
    opt = parser.parse_args()
    if opt.data:
        opt = prepare(opt)
    train(opt, torch.load("/nowhere/batches.pt"))

if __name__ == "__main__":
    main()
"""
    )
    traced = trace(source, "train.step")
    assert traced.inputs() == snapshot(["tokens: i64[4, 8] · search"])
    assert [note for note in traced.trace.notes if "assumed" in note] == snapshot(
        ["the data is missing; assumed: vocab_size=1000"]
    )


def test_options_of_a_group_and_of_a_command_are_those_of_the_parser(trace):
    source = (
        NET
        + """
def train(args):
    model = Net(args.width, args.classes)
    for x in torch.load("/nowhere/batches.pt"):
        model(x).sum().backward()

def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command")
    trainer = commands.add_parser("train")
    trainer.add_argument("--width", type=int, default=24)
    group = trainer.add_argument_group("model")
    group.add_argument("--classes", type=int, default=3)
    args = parser.parse_args()
    train(args)

if __name__ == "__main__":
    main()
"""
    )
    assert trace(source, "train.step").inputs() == snapshot(["x: f32[4, 24] · search"])
