"""Which loops and functions are training and evaluation steps, and the functions that their bodies amount to."""

import ast
import textwrap

import pytest
from inline_snapshot import snapshot

from fx_lsp.training.function import with_step
from fx_lsp.training.step import STEP, steps_of

TRAINING = """
    for epoch in range(epochs):
        for i, (x, y) in enumerate(loader):
            x = x.to(device)
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
"""


def steps(source: str) -> list[str]:
    """The name of each step with the line that it begins at."""
    return [f"{step.name} · {step.region.lineno}" for step in steps_of(ast.parse(textwrap.dedent(source)))]


def function_of(source: str, line: int, name: str = "step", inputs: tuple[str, ...] = ()) -> str:
    """The function that the step at a line of a text amounts to."""
    tree = with_step(ast.parse(textwrap.dedent(source)), line, name, inputs)
    compile(tree, "<step>", "exec")
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.lineno == line)
    return ast.unparse(next(functions)).replace(f"def {STEP.format('')}", "def ")


def test_the_loop_over_batches_is_a_step_and_that_over_epochs_is_none() -> None:
    assert steps(TRAINING) == ["step · 3"]


def test_steps_are_named_after_what_they_are_in() -> None:
    source = """
        def train(model, loader):
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
            with torch.no_grad():
                for x, y in loader:
                    correct += (model(x).argmax(1) == y).sum().item()

        class Trainer:
            def fit(self):
                while True:
                    self.loss().backward()

            def update(self, x):
                loss = self.model(x).mean()
                loss.backward()
        """
    assert steps(source) == snapshot(
        ["train.step · 3", "train.step_2 · 6", "Trainer.fit.step · 11", "Trainer.update · 14"]
    )


@pytest.mark.parametrize(
    "source",
    [
        "for x in rows:\n  print(x)",
        "for layer in layers:\n  x = layer(x)",
        "for x in loader:\n  features = model(x)",
        "def test_gradients():\n  for x in loader:\n    model(x).backward()",
        "class Scale(torch.autograd.Function):\n  def backward(ctx, g):\n    return g",
        "def call(loss):\n  loss.backward()",
    ],
)
def test_what_is_no_step(source: str) -> None:
    assert steps(source) == []


def test_a_step_ends_with_its_loss() -> None:
    assert function_of(TRAINING, 3) == snapshot("""\
def step(x, y):
    x = x.to(device)
    loss = criterion(model(x), y)
    return  backward(loss)\
""")


def test_what_goes_from_turn_to_turn_is_an_input() -> None:
    source = """
        def train(model, loader):
            hidden = model.start()
            for x in loader:
                hidden = hidden.detach()
                out, hidden = model(x, hidden)
                out.mean().backward()
        """
    assert function_of(source, 4) == snapshot("""\
def step(x, *, hidden=hidden):
    hidden = hidden.detach()
    out, hidden = model(x, hidden)
    return  backward(out.mean())\
""")


def test_a_batch_of_which_parts_are_taken_is_these_parts() -> None:
    source = """
        for batch in loader:
            images, masks = batch["image"].cuda(), batch["mask"]
            loss = criterion(model(images), masks) + batch["weight"].sum()
            loss.backward()
        """
    assert function_of(source, 2) == snapshot("""\
def step(images, masks, weight):
    images, masks = (images.cuda(), masks)
    loss = criterion(model(images), masks) + weight.sum()
    return  backward(loss)\
""")
    source = """
        for i, data in enumerate(loader):
            x, y = data
            criterion(model(x), y).backward()
        """
    assert function_of(source, 2) == snapshot("""\
def step(x, y):
    return  backward(criterion(model(x), y))\
""")


def test_several_losses() -> None:
    source = """
        for real in loader:
            fake = generator(noise(len(real)))
            loss = critic(fake.detach()).mean() - critic(real).mean()
            loss.backward()
            critic_optimizer.step()
            if step % 5 == 0:
                loss = -critic(fake).mean()
                scaler.scale(loss).backward()
        """
    assert function_of(source, 2) == snapshot("""\
def step(real):
    fake = generator(noise(len(real)))
    loss = critic(fake.detach()).mean() - critic(real).mean()
    loss 0 =  backward(loss)
    loss = -critic(fake).mean()
    return (loss 0, loss)\
""")


def test_one_of_several_ways_to_call_backward_is_taken() -> None:
    source = """
        for x in loader:
            loss = model(x)
            if fp16:
                with amp.scale_loss(loss, optimizer) as scaled:
                    scaled.backward()
            else:
                loss.backward()
        """
    assert function_of(source, 2) == snapshot("""\
def step(x):
    loss = model(x)
    return  backward(loss)\
""")


def test_an_evaluation_gives_what_it_takes_values_of() -> None:
    source = """
        @torch.no_grad()
        def test(model, loader):
            for x, y in loader:
                out = model(x)
                loss = F.cross_entropy(out, y)
                value = loss.item()
                total += value * len(x)
                correct += out.argmax(1).eq(y).sum().item()
                outputs.append(out.cpu().numpy())
        """
    assert function_of(source, 4) == snapshot("""\
def step(x, y):
    out = model(x)
    loss = F.cross_entropy(out, y)
    return (loss, out.argmax(1).eq(y).sum(), out)\
""")


def test_a_method_that_a_trainer_calls() -> None:
    source = """
        class Model(LightningModule):
            def training_step(self, batch, batch_idx):
                x, y = batch
                loss = F.mse_loss(self(x), y)
                self.log("loss", loss)
                return loss

            def validation_step(self, batch, batch_idx):
                self.log("loss", F.mse_loss(self(batch[0]), batch[1]))
        """
    assert steps(source) == snapshot(["Model.training_step · 3", "Model.validation_step · 9"])
    assert function_of(source, 3, "training_step") == snapshot("""\
def training_step(self, x, y, batch_idx):
    loss = F.mse_loss(self(x), y)
    return loss\
""")
    assert function_of(source, 9, "validation_step") == snapshot("""\
def validation_step(self, batch_0, batch_1, batch_idx):
    return F.mse_loss(self(batch_0), batch_1)\
""")


def test_values_taken_of_each_of_several_tensors() -> None:
    source = """
        class Model(LightningModule):
            def validation_step(self, batch, batch_idx):
                losses = self.losses(*batch)
                self.log_dict({f"val_{name}": loss.item() for name, loss in losses.items()})
        """
    assert function_of(source, 3, "validation_step") == snapshot("""\
def validation_step(self, batch, batch_idx):
    losses = self.losses(*batch)
    return [loss for name, loss in losses.items()]\
""")


def test_what_cannot_be_had_is_a_parameter() -> None:
    assert function_of(
        "while True:\n  x, y = batch()\n  f(model(x), weights).backward()", 1, inputs=("weights",)
    ) == snapshot("""\
def step(weights):
    x, y = batch()
    return  backward(f(model(x), weights))\
""")
