"""The user's own Triton kernels, launched where no GPU is."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator

import pytest
from inline_snapshot import snapshot

from fx_lsp.model import TraceReply, TraceRequest
from fx_lsp.tracer import job

pytest.importorskip("triton")


@pytest.fixture(scope="module")
def reply() -> Iterator[Callable[[TraceRequest], TraceReply]]:
    """Answer requests where Triton compiles kernels, as it does for users: in this process it interprets them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fx_lsp.tracer.job", "triton", "triton.experimental.gluon"])
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TRITON_INTERPRET", "0")
        with context.Pool(1, maxtasksperchild=1) as pool:
            yield lambda request: pool.apply(job.run, (request,))


HEAD = """\
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def scale_kernel(x_ptr, w_ptr, out_ptr, n, eps: tl.constexpr = 0.0, BLOCK: tl.constexpr = 256):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    w = tl.load(w_ptr + at, mask=at < n)
    tl.store(out_ptr + at, x * w + eps, mask=at < n)

"""

SCALE = """
def scale(x, w):
    out = torch.empty_like(x)
    n = x.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
    scale_kernel[grid](x, w, out, n, BLOCK=1024, num_warps=8)
    return out
"""


def launches(traced, stage: str) -> list[str]:
    """The launches of a stage, each with its arguments and what it does with memory."""
    nodes = [n for n in traced.stage(stage).nodes if "triton_kernel" in n.target]
    return [text for n in nodes for text in (", ".join(n.args), n.comment)]


@pytest.mark.parametrize("device", ["", "@cuda"])
def test_a_launch_is_a_node_that_says_what_it_reads_and_writes(device: str, trace):
    comment = f"# fx: x=f32[4, 512]{device}, w=f32[4, 512]{device}"
    traced = trace(HEAD + SCALE.replace("def scale", f"{comment}\ndef scale"), "scale")
    assert launches(traced, "inference") == snapshot(
        [
            "scale_kernel, grid=(2, 1, 1), x_ptr=x, w_ptr=w, out_ptr=out, n=2048, eps=0.0, BLOCK=1024",
            "reads x_ptr, w_ptr; writes out_ptr",
        ]
    )
    assert traced.stage("inference").nodes[-1].args == snapshot(("(out_ptr,)",))


def test_a_launch_in_an_autograd_function_has_a_backward(trace):
    source = (
        HEAD
        + SCALE
        + """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return scale(x, w)

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return scale(grad, w), scale(grad, x)

# fx: init(dim=64), x=f32[8, 64]
class Scaled(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w = nn.Parameter(torch.ones(8, dim))
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        return self.out(Scale.apply(x, self.w))
"""
    )
    traced = trace(source, "Scaled")
    assert launches(traced, "forward") == snapshot(
        [
            "scale_kernel, grid=(1, 1, 1), x_ptr=x, w_ptr=w, out_ptr=out, n=512, eps=0.0, BLOCK=1024",
            "reads x_ptr, w_ptr; writes out_ptr",
        ]
    )
    assert launches(traced, "backward") == snapshot(
        [
            "scale_kernel, grid=(1, 1, 1), x_ptr=mm, w_ptr=w, out_ptr=empty_like_1, n=512, eps=0.0, BLOCK=1024",
            "reads x_ptr, w_ptr; writes out_ptr",
            "scale_kernel, grid=(1, 1, 1), x_ptr=mm, w_ptr=x, out_ptr=empty_like_1, n=512, eps=0.0, BLOCK=1024",
            "reads x_ptr, w_ptr; writes out_ptr",
        ]
    )
    assert [s.name for s in traced.trace.saved] == snapshot(["w", "out_weight", "x", "out_ptr"])


TUNED = """
@triton.autotune([triton.Config({"BLOCK": 128}, num_warps=4), triton.Config({"BLOCK": 256})], key=["n"])
@triton.heuristics({"EVEN": lambda values: values["n"] % values["BLOCK"] == 0})
@triton.jit
def add_one_kernel(x_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(x_ptr + at, x + 1, mask=at < n)

# fx: x=f32[300]@cuda
def f(x):
    x = x.clone()
    add_one_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, x.numel())
    return x
"""


def test_a_tuned_kernel_has_the_numbers_of_its_first_configuration(trace):
    assert launches(trace(HEAD + TUNED, "f"), "forward") == snapshot(
        ["add_one_kernel, grid=(3, 1, 1), x_ptr=x_1, n=300, EVEN=False, BLOCK=128", "reads x_ptr; writes x_ptr"]
    )


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        ("scale_kernel[(1,)](x, w, out)", snapshot("TypeError: scale_kernel() missing 1 required arguments: n")),
        (
            "scale_kernel[(1,)](x, w, out, 4, blocks=8)",
            snapshot("KeyError: 'Keyword argument blocks was specified but unrecognised'"),
        ),
        (
            "scale_kernel[(1,)](x, w.cpu(), out, 4)",
            snapshot("scale_kernel: pointer argument `w_ptr` is a tensor on the CPU, which Triton cannot access"),
        ),
        (
            "scale_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, w, out, 4)",
            snapshot("NameError: name 'BLOCK' is not defined"),
        ),
    ],
)
def test_a_launch_that_does_not_fit_its_kernel_is_an_error(launch: str, message: str, trace):
    body = f"    out = torch.empty_like(x)\n    {launch}\n    return out\n"
    source = f"# fx: x=f32[4]@cuda, w=f32[4]@cuda\ndef f(x, w):\n{body}"
    failure = trace(HEAD + source, "f").failure
    assert failure.severity == "error"
    assert failure.span.line == HEAD.count("\n") + 4
    assert failure.message == message


def test_programs_ask_for_the_device_that_triton_runs_on(trace):
    device = "\nDEVICE = triton.runtime.driver.active.get_active_torch_device()\n"
    source = f"{HEAD}{SCALE}{device}scale(torch.rand(512, device=DEVICE), torch.rand(512, device=DEVICE))\n"
    inputs = trace(source, "scale").trace.inputs
    assert [f"{i.name}={i.spec} by {i.source}" for i in inputs] == snapshot(
        ["x=f32[512]@cuda by call site", "w=f32[512]@cuda by call site"]
    )


def test_a_launch_of_as_many_programs_as_the_gpu_has_multiprocessors(trace):
    source = """
# fx: x=f32[4096]@cuda, w=f32[4096]@cuda
def f(x, w):
    out = torch.empty_like(x)
    programs = torch.cuda.get_device_properties(x.device).multi_processor_count
    with torch.cuda.device(x.device.index):
        scale_kernel[(programs,)](x, w, out, x.numel())
    return out
"""
    assert launches(trace(HEAD + source, "f"), "inference")[0].startswith("scale_kernel, grid=(132, 1, 1), ")
