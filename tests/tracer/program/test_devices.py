"""Code for a GPU, where there is none."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn

"""


def specs(traced, stage="forward"):
    """The operations of a stage with the specs of what they give."""
    nodes = [n for n in traced.stage(stage).nodes if n.op == "call_function"]
    return [f"{n.target.removesuffix('.default')}: {n.spec}" for n in nodes]


def test_tensors_are_on_the_device_in_forward_and_backward(trace):
    traced = trace(
        HEAD
        + """
# fx: x=f32[4, 8]@cuda
def f(x):
    w = torch.ones(8, device=x.device)
    return (x.to("cuda") * w + torch.tensor(2.0)).relu()
""",
        "f",
    )
    assert specs(traced, "joint") == snapshot(
        [
            "aten.ones: f32[8]@cuda",
            "aten.mul.Tensor: f32[4, 8]@cuda",
            "aten.lift_fresh_copy: f32[]",
            "aten.add.Tensor: f32[4, 8]@cuda",
            "aten.relu: f32[4, 8]@cuda",
            "aten.detach: f32[4, 8]@cuda",
            "aten.detach: f32[4, 8]@cuda",
            "aten.threshold_backward: f32[4, 8]@cuda",
            "aten.mul.Tensor: f32[4, 8]@cuda",
        ]
    )


@pytest.mark.parametrize(
    "line",
    [
        "x + torch.arange(8)",
        "x @ torch.ones(8, 8)",
        "torch.cat([x, torch.zeros(4, 8)])",
        "F.embedding(torch.zeros(4, dtype=torch.long), x)",
    ],
)
def test_a_tensor_on_another_device_is_an_error(line: str, trace):
    failure = trace(HEAD + f"# fx: x=f32[4, 8]@cuda\ndef f(x):\n    return {line}\n", "f").failure
    assert (failure.kind, failure.severity) == ("device", "error")
    assert failure.message.startswith("operands are on different devices, c")
    assert failure.span is not None and failure.span.line == 7


@pytest.mark.parametrize(
    "line",
    [
        "x * torch.tensor(2.0)",
        "x[torch.tensor([0, 1])]",
        "x.cpu() + torch.arange(8)",
        "x.new_zeros(8) + torch.zeros_like(x) + torch.empty(8).to(x)",
        "F.one_hot(x.argmax(-1), 8) * x",
        "torch.where(x > 0, x, 0.0)",
    ],
)
def test_what_may_be_on_the_cpu_may(line: str, trace):
    assert trace(HEAD + f"# fx: x=f32[4, 8]@cuda\ndef f(x):\n    return {line}\n", "f").trace


def test_types_of_tensors_on_a_gpu(trace):
    traced = trace(
        HEAD
        + """
# fx: x=f32[4, 8]@cuda
def f(x):
    ids = torch.arange(0, 8, out=torch.cuda.LongTensor(8))
    ones = torch.cuda.FloatTensor([[1.0] * 8])
    assert isinstance(x, torch.cuda.FloatTensor) and x.type() == "torch.cuda.FloatTensor"
    return x * ids.type(torch.cuda.FloatTensor) + ones.type("torch.cuda.HalfTensor")
""",
        "f",
    )
    assert specs(traced) == snapshot(
        [
            "aten.arange.start_step: i64[8]@cuda",
            "aten.lift_fresh_copy: f32[1, 8]",
            "aten._to_copy: f32[1, 8]@cuda",
            "aten._to_copy: f32[8]@cuda",
            "aten.mul.Tensor: f32[4, 8]@cuda",
            "aten._to_copy: f16[1, 8]@cuda",
            "aten.add.Tensor: f32[4, 8]@cuda",
        ]
    )


def test_autocast_casts_as_on_a_gpu(trace):
    traced = trace(
        HEAD
        + """
# fx: x=f32[4, 8]@cuda, w=f32[8, 8]@cuda
def f(x, w):
    with torch.autocast("cuda", torch.bfloat16):
        return (x @ w).softmax(-1)
""",
        "f",
    )
    assert specs(traced, "joint") == snapshot(
        [
            "aten._to_copy: bf16[4, 8]@cuda",
            "aten._to_copy: bf16[8, 8]@cuda",
            "aten.mm: bf16[4, 8]@cuda",
            "aten._to_copy: f32[4, 8]@cuda",
            "aten._softmax: f32[4, 8]@cuda",
            "aten.detach: f32[4, 8]@cuda",
            "aten.detach: f32[4, 8]@cuda",
            "aten._softmax_backward_data: f32[4, 8]@cuda",
            "aten._to_copy: bf16[4, 8]@cuda",
            "aten.t: bf16[8, 4](1, 8)@cuda",
            "aten.mm: bf16[8, 8]@cuda",
            "aten.t: bf16[8, 8](1, 8)@cuda",
            "aten.mm: bf16[4, 8]@cuda",
            "aten._to_copy: f32[8, 8]@cuda",
            "aten._to_copy: f32[4, 8]@cuda",
        ]
    )


def test_a_training_step_with_scaled_gradients(trace):
    traced = trace(
        HEAD
        + """
def train():
    model = nn.Linear(8, 4).cuda()
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(3):
        x, y = torch.randn(4, 8).cuda(), torch.zeros(4, dtype=torch.long, device="cuda")
        with torch.autocast("cuda"):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()

train()
""",
        "train.step",
    )
    assert specs(traced) == snapshot(
        [
            "aten.randn: f32[4, 8]",
            "aten._to_copy: f32[4, 8]@cuda",
            "aten.zeros: i64[4]@cuda",
            "aten._to_copy: f16[4, 8]@cuda",
            "aten._to_copy: f16[4, 8]@cuda",
            "aten._to_copy: f16[4]@cuda",
            "aten.t: f16[8, 4](1, 8)@cuda",
            "aten.addmm: f16[4, 4]@cuda",
            "aten._log_softmax: f16[4, 4]@cuda",
            "aten.detach: f16[4, 4]@cuda",
            "aten._to_copy: f32[4, 4]@cuda",
            "aten.nll_loss_forward: (f32[]@cuda, f32[]@cuda)",
            "operator.getitem: f32[]@cuda",
            "operator.getitem: f32[]@cuda",
            "aten.detach: f16[4, 4]@cuda",
        ]
    )


def test_code_that_asks_for_a_gpu_and_uses_one_anyway_means_a_machine_with_one(trace):
    source = HEAD + (
        'device = "cuda" if torch.cuda.is_available() else "cpu"\n\n'
        "# fx: n=4\ndef f(n):\n    return torch.ones(n, device=device) * torch.ones(n).cuda()\n"
    )
    assert trace(source, "f").trace.outputs == ("f32[4]@cuda",)


def test_two_gpus(trace):
    source = HEAD + (
        "# fx: x=f32[4, 8]\ndef f(x):\n    a = nn.Linear(8, 8).to('cuda:0')\n    b = nn.Linear(8, 4).to('cuda:1')\n"
        "    return b(a(x.to('cuda:0')).to('cuda:1'))\n"
    )
    assert trace(source, "f").trace.outputs == ("f32[4, 4]@cuda:1",)
    wrong = trace(source.replace(".to('cuda:1'))", ")"), "f").failure
    assert wrong.message.startswith("operands are on different devices, cuda:0 and cuda:1")


def test_streams_generators_and_attention(trace):
    traced = trace(
        HEAD
        + """
# fx: x=bf16[2, 4, 16, 64]@cuda
def f(x):
    torch.cuda.set_device(0)
    with torch.cuda.stream(torch.cuda.Stream()):
        noise = torch.randn(64, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    torch.cuda.synchronize()
    return F.scaled_dot_product_attention(x, x, x + noise.to(x.dtype), is_causal=True)
""",
        "f",
    )
    assert specs(traced)[-3:] == snapshot(
        ["operator.getitem: u64[]@cuda", "aten.detach: bf16[2, 4, 16, 64]@cuda", "aten.detach: bf16[2, 4, 16, 64]@cuda"]
    )
    assert traced.trace.notes[0].startswith("there is no cuda device here: where PyTorch selects operations by device")


def test_what_is_compiled_stands_on_the_cpu(trace):
    source = HEAD + "# fx: x=f32[4, 8]@cuda\ndef f(x):\n    return x * 2\n"
    traced = trace(source, "f", work="passes")
    assert traced.trace.notes == snapshot(("traces use no GPU: what the code puts on cuda is on the CPU here",))
