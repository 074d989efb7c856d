"""The peak memory of a training program on a GPU, from its run on fake tensors: what holds each byte, and where."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from conftest import TraceFixture

from fx_lsp.model import Failure, StepMemory, Trace

HEAD = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"

class Net(nn.Module):
    def __init__(self, middle=None):
        super().__init__()
        self.first = nn.Linear(256, 256, bias=False)
        self.middle = middle or nn.ReLU()
        self.last = nn.Linear(256, 256, bias=False)

    def forward(self, x):
        return self.last(self.middle(self.first(x)))
"""
TRAIN = """
def main():
    net = NET.to(device)
    optimizer = OPTIMIZER
    for step in range(100):
        x = torch.randn(ROWS, 256, device=device)
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

if __name__ == "__main__":
    main()
"""
WEIGHT = 256 * 256 * 4
ROW = 256 * 4


Measure = Callable[..., StepMemory]


@pytest.fixture
def measured(trace: TraceFixture) -> Measure:
    """The memory of a program; of one with these parts in its place of a model, an optimizer and a batch."""

    def run(net: str, optimizer: str, rows: int, loop: str = TRAIN, work: str = "memory") -> StepMemory:
        source = loop.replace("NET", net).replace("OPTIMIZER", optimizer).replace("ROWS", str(rows))
        outcome = trace(HEAD + source, "__main__", work=work).outcome
        assert isinstance(outcome, Trace) and outcome.memory is not None, outcome
        return outcome.memory

    return run


def test_an_optimizer_that_computes_with_all_parameters_at_once_needs_a_copy_of_them(measured: Measure):
    memory = measured("Net()", "torch.optim.AdamW(net.parameters())", 4)
    assert (memory.phase, memory.device) == ("optimizer", "cuda")
    assert (memory.parameters, memory.gradients) == (2 * WEIGHT, 2 * WEIGHT)
    assert 0 <= memory.optimizer - 4 * WEIGHT <= 2048, "two moments of each parameter, and the numbers of steps"
    assert memory.temporary == 2 * WEIGHT
    fused = measured("Net()", "torch.optim.AdamW(net.parameters(), fused=True)", 4)
    assert fused.temporary < WEIGHT, "a fused one changes them in place"


def test_a_large_batch_has_its_peak_at_the_line_that_saves_most(measured: Measure):
    memory = measured("Net()", "torch.optim.SGD(net.parameters(), lr=0.1)", 8192)
    assert memory.phase == "backward"
    assert memory.optimizer == 0
    assert memory.span is not None
    assert 0 < memory.saved - 3 * 8192 * ROW <= 1024, "the batch, the result of relu, that of `last`; and the loss"
    assert memory.peak == memory.parameters + memory.gradients + memory.saved + memory.temporary + memory.workspaces
    assert memory.workspaces == 64 << 20, "of the main thread and that of autograd"
    assert memory.peak <= memory.reserved <= 1.3 * memory.peak


@pytest.mark.parametrize(
    ("middle", "bytes_per_element"),
    [
        ("nn.Dropout(0.1)", 4 + 1),  # its result is the input of `last`, and a mask of bools
        ("nn.SiLU()", 4 + 4),  # its input, and its result
        ("nn.ReLU()", 4),
    ],
)
def test_layers_save_what_they_do_on_a_gpu(measured: Measure, middle: str, bytes_per_element: int):
    memory = measured(f"Net({middle})", "torch.optim.SGD(net.parameters(), lr=0.1)", 8192)
    assert 0 < memory.saved - 8192 * 256 * (4 + bytes_per_element + 4) <= 1024, "besides, the batch and the result"


def test_what_a_checkpoint_does_not_save(measured: Measure):
    deep = "nn.Sequential(*(Net(nn.Sequential(nn.GELU(), nn.GELU(), nn.GELU())) for _ in range(4)))"
    whole = measured(deep, "torch.optim.SGD(net.parameters(), lr=0.1)", 8192)
    loop = TRAIN.replace(
        "net(x)", "checkpoint(net[2:], checkpoint(net[:2], x, use_reentrant=False), use_reentrant=False)"
    )
    less = measured(deep, "torch.optim.SGD(net.parameters(), lr=0.1)", 8192, loop)
    assert less.peak < 0.7 * whole.peak


def test_gradients_that_are_accumulated_are_alive_in_forward(measured: Measure):
    loop = TRAIN.replace("        optimizer.zero_grad()\n", "").replace(
        "        optimizer.step()\n",
        "        if step % 4 == 3:\n            optimizer.step()\n            optimizer.zero_grad()\n",
    )
    memory = measured("Net()", "torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)", 8192, loop)
    assert (memory.gradients, memory.optimizer) == (2 * WEIGHT, 2 * WEIGHT)


def test_frozen_weights_have_no_gradient_and_no_state(measured: Measure):
    loop = TRAIN.replace("    optimizer =", "    net.first.requires_grad_(False)\n    optimizer =")
    memory = measured("Net()", "torch.optim.AdamW(net.last.parameters())", 4, loop)
    assert (memory.parameters, memory.gradients) == (2 * WEIGHT, WEIGHT)
    assert memory.optimizer < 3 * WEIGHT


LOADER = """
def main():
    net = Net().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in DataLoader(TensorDataset(torch.randn(64, 256), torch.randn(64, 256)), batch_size=16):
        loss = F.mse_loss(net(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

if __name__ == "__main__":
    main()
"""


def test_batches_of_a_loader_can_be_larger(measured: Measure):
    once, larger = measured("", "", 0, LOADER), measured("", "", 0, LOADER, "memory=16")
    assert (once.batch, larger.batch) == (16, 256)
    grown = (larger.phases[1] - once.phases[1]) / 240
    assert 3 * ROW <= grown <= 8 * ROW, "the bytes of one sample"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("torch.randn(ROWS, 256, device=device)", "torch.randn(BATCH, 256, device=device)", id="rows"),
        pytest.param(
            "torch.randn(ROWS, 256, device=device)", "torch.randn(BATCH * 256).view(-1, 256).to(0)", id="view"
        ),
    ],
)
def test_a_number_that_gives_models_more_rows_and_no_more_parameters_is_the_batch(
    measured: Measure, before: str, after: str
):
    loop = "BATCH = 48\nSTEPS = 48\n" + TRAIN.replace(before, after)
    once, larger = (measured("Net()", "torch.optim.SGD(net.parameters())", 0, loop, w) for w in ("memory", "memory=16"))
    assert (once.batch, larger.batch) == (0, 16 * 48)
    grown = (larger.phases[1] - once.phases[1]) / (15 * 48)
    assert 3 * ROW <= grown <= 8 * ROW, "the bytes of one sample"


@pytest.mark.parametrize(
    ("reduction", "of"), [("checkpoint", "Net"), ("bfloat16", "Sequential"), ("fused", "AdamW"), ("", "")]
)
def test_what_a_reduction_saves(measured: Measure, reduction: str, of: str):
    deep = "nn.Sequential(*(Net(nn.Sequential(nn.GELU(), nn.GELU(), nn.GELU())) for _ in range(4)))"
    rows = 4 if reduction == "fused" else 8192
    whole, less = (
        measured(deep, "torch.optim.AdamW(net.parameters())", rows, TRAIN, work)
        for work in ("memory", f"memory&reduced={reduction}")
    )
    assert less.reduced == of
    saved = (whole.peak - less.peak) / (whole.peak - whole.workspaces)
    assert saved >= 0.15 if reduction else saved == 0, saved
    more = less.flops / whole.flops - 1
    assert more > 0.15 if reduction == "checkpoint" else abs(more) < 0.05, more


def test_a_loop_that_does_not_train_runs_to_its_end(measured: Measure):
    loop = TRAIN.replace(
        "x = torch.randn(ROWS, 256, device=device)",
        "x = torch.cat([torch.randn(ROWS, 256, device=device) for _ in range(4)])\n"
        "        rows = []\n"
        "        for _ in range(60):\n"
        "            rows.append(x[:4] + 1)\n"
        "        x = torch.cat(rows)",
    )
    memory = measured("Net()", "torch.optim.SGD(net.parameters())", 4, loop)
    assert memory.saved >= 60 * 4 * 3 * ROW


def test_batches_in_pinned_memory_of_a_model_that_moves_once_its_optimizer_exists(measured: Measure):
    loop = TRAIN.replace("NET.to(device)", "NET").replace("256, device=device)", "256).pin_memory().to(device)")
    moved = loop.replace("    for step", "    net.to(device)\n    for step")
    memory = measured("Net()", "torch.optim.SGD(net.parameters(), momentum=0.9)", 4, moved)
    assert (memory.gradients, memory.optimizer, memory.device) == (2 * WEIGHT, 2 * WEIGHT, "cuda")


@pytest.mark.parametrize(("layer", "numbers"), [("LSTM", 6), ("GRU", 5), ("RNN", 1)])
def test_recurrent_layers_are_one_operation_of_a_gpu(measured: Measure, layer: str, numbers: int):
    loop = TRAIN.replace("ROWS, 256", "ROWS, 32, 256").replace("net(x)", "net(x)[0]")
    memory = measured(f"nn.{layer}(256, 256, batch_first=True)", "torch.optim.SGD(net.parameters())", 64, loop)
    assert 0 <= memory.saved / (64 * 32 * ROW) - (2 + numbers) < 1, "the batch, the output, and what cuDNN saves"


def test_a_program_that_does_not_train_has_no_peak(trace: TraceFixture):
    def reason(source: str) -> str:
        outcome = trace(HEAD + source, "__main__", work="memory").outcome
        assert isinstance(outcome, Failure)
        return outcome.message

    only_once = TRAIN.replace("NET", "Net()").replace("OPTIMIZER", "torch.optim.SGD(net.parameters(), lr=0.1)")
    once = only_once.replace("ROWS", "4").replace("range(100)", "range(1)")
    assert reason(once) == "user.py does not train to its second step here: an optimizer steps once"
    wrong = only_once.replace("ROWS", "4").replace("256, device", "255, device")
    assert "user.py does not train to its second step here: " in reason(wrong)
    assert "255" in reason(wrong)
