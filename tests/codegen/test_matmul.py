"""Matmuls with what is computed of their operands and results, in one kernel: against float64, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from inline_snapshot import snapshot
from interpreted import captured, checked, generated
from parameters import some

from fx_lsp.choices import Choices, Matmul
from fx_lsp.codegen.pipeline import finish


def tensor(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = True) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_(grad)


def fused(function: Callable[..., Any], *inputs: torch.Tensor) -> tuple[int, int]:
    """How many matmuls of forward and of backward are kernels, once the file of a function was found right."""
    made = checked(function, inputs)
    forward, *backward = (sum("tl.dot(" in _text(s) for s in program.steps) for program in made.programs)
    return forward, sum(backward)


def _text(step: Any) -> str:
    return "\n".join(line.text for line in step.kernel.printed()) if hasattr(step, "kernel") else ""


def kernel(function: Callable[..., Any], *inputs: torch.Tensor) -> str:
    """The text of the first kernel of forward that multiplies, without its head."""
    made = generated(captured(function, inputs))
    text = next(t for s in made.programs[0].steps if "tl.dot(" in (t := _text(s)))
    return text[text.index(":\n    #") + 2 :]


def linear_gelu(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.linear(x, weight, bias))


def gated(x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, w3: torch.Tensor) -> torch.Tensor:
    return (F.silu(x @ w1) * (x @ w3)) @ w2


torch.manual_seed(0)
TYPES = (torch.float32, torch.float16, torch.bfloat16)


SIZES = [(7, 33, 130), (33, 7, 64), (64, 64, 7), (130, 130, 33), (64, 130, 64), (130, 64, 33), (33, 2, 2), (2, 130, 64)]


@pytest.mark.parametrize("m, n, k", some(SIZES, [SIZES[n] for n in (0, 3, 6, 7)], several=True))
def test_sizes(m: int, n: int, k: int) -> None:
    assert fused(lambda x, y: torch.tanh(x @ y), tensor(m, k), tensor(k, n)) == (1, 0)


@pytest.mark.parametrize("size, kernels", [(32, 1), (512, 0)])
def test_the_library_multiplies_large_matrices_of_float32(size: int, kernels: int) -> None:
    for depth, count in ((32, 1), (size, kernels)):
        made = generated(captured(lambda x, y: torch.tanh(x @ y), [tensor(size, depth), tensor(depth, size)]))
        assert made.text.count("tl.dot(") == count


@pytest.mark.parametrize("m, n, k", [(1, 33, 64), (33, 1, 64), (33, 64, 1), (0, 5, 7), (5, 7, 0)])
def test_vectors_and_nothing_are_not_for_tiles(m: int, n: int, k: int) -> None:
    assert fused(lambda x, y: torch.tanh(x @ y), tensor(m, k), tensor(k, n)) == (0, 0)


@pytest.mark.parametrize("dtype", some(TYPES, (torch.float16,)))
def test_linear_and_gelu(dtype: torch.dtype) -> None:
    inputs = [tensor(*s, dtype=dtype) for s in ((2, 33, 64), (130, 64), (130,))]
    assert fused(linear_gelu, *inputs) == (1, 0)


def test_the_kernel_of_linear_and_gelu() -> None:
    inputs = [tensor(*s, dtype=torch.bfloat16) for s in ((2, 256, 64), (130, 64), (130,))]
    assert kernel(linear_gelu, *inputs) == snapshot("""\
    # programs that run at the same time share operands in the L2 cache
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    num_m, num_n = tl.num_programs(0), tl.num_programs(1)
    pid_n, pid_m = tl.swizzle2d(pid_n, pid_m, num_n, num_m, GROUP)
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    cols_mask = cols[None, :] < N
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        primals_1 = tl.load(primals_1_ptr + rows[:, None] * K + k[None, :])
        primals_2 = tl.load(primals_2_ptr + cols[None, :] * K + k[:, None], mask=cols_mask)
        acc = tl.dot(primals_1, primals_2, acc)
    primals_3 = tl.load(primals_3_ptr + cols[None, :], mask=cols_mask, eviction_policy="evict_last").to(tl.float32)
    addmm = acc + primals_3
    tl.store(addmm_ptr + rows[:, None] * N + cols[None, :], addmm, mask=cols_mask)
    mul_2 = addmm * 0.5 * one_plus_erf(addmm * 0.7071067811865476)
    tl.store(convert_element_type_4_ptr + rows[:, None] * N + cols[None, :], mul_2, mask=cols_mask)\
""")


def test_float32_is_multiplied_as_pytorch_does_by_default() -> None:
    for dtype, precise in ((torch.float32, True), (torch.bfloat16, False)):
        inputs = [tensor(*s, dtype=dtype) for s in ((33, 64), (130, 64), (130,))]
        assert ('input_precision="ieee"' in kernel(linear_gelu, *inputs)) == precise


@pytest.mark.parametrize("dtype", some(TYPES, (torch.bfloat16,)))
def test_gated_mlp(dtype: torch.dtype) -> None:
    inputs = [tensor(*s, dtype=dtype) for s in ((33, 64), (64, 48), (48, 64), (64, 48))]
    assert fused(gated, *inputs) == (1, 2)


@pytest.mark.parametrize("beta, alpha", [(1, 1), (0, 1), (2.5, -0.5)])
def test_addmm_with_factors(beta: float, alpha: float) -> None:
    ignored = torch.full((130,), float("nan"), requires_grad=True)
    inputs = tensor(130) if beta else ignored, tensor(33, 64), tensor(64, 130)
    assert fused(lambda c, x, y: torch.addmm(c, x, y, beta=beta, alpha=alpha).exp().neg(), *inputs)[0] == 1


def test_an_expanded_operand_is_read_where_it_is() -> None:
    x, y = tensor(2, 3, 320, 16, grad=False), tensor(3, 16, 48, grad=False)
    assert len(checked(lambda x, y: (x @ y).tanh(), (x, y)).programs[0].steps) == 1


def test_what_many_programs_need_is_computed_once() -> None:
    x, wide = tensor(33, 64, grad=False), tensor(64, 1000, grad=False)
    made = generated(captured(lambda x, y: (x.exp() @ y).tanh(), (x, wide)))
    assert [len(s.reads) for s in made.programs[0].steps] == snapshot([1, 2])


def heads(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (x @ weight).view(2, 9, 4, 16).transpose(1, 2).contiguous() * 0.25


def scores(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    result = x @ y + z
    return result, F.softmax(result, -1)


def constant(*shape: int) -> torch.Tensor:
    return tensor(*shape, grad=False)


X, Y = constant(33, 70), constant(70, 48)
PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], tuple[int, ...]]] = {
    "two layers, with the gradient between them": (
        lambda x, w, b, v, c: F.linear(F.relu(F.linear(x, w, b)), v, c),
        (tensor(33, 64), tensor(130, 64), tensor(130), tensor(7, 130), tensor(7)),
        (1, 1),
    ),
    "transposed operands": (lambda x, y: torch.sigmoid(x.T @ y.T) * 2, (tensor(64, 33), tensor(130, 64)), (1, 0)),
    "a transposed result": (lambda x, y: torch.sigmoid(y @ x).T + 1, (tensor(64, 33), tensor(130, 64)), (1, 0)),
    "a residual and a broadcast scale": (
        lambda x, w, scale, gate: x + (x @ w) * scale * gate,
        (tensor(2, 7, 64), tensor(64, 64), tensor(64), tensor(2, 7, 1)),
        (1,),
    ),
    "baddbmm": (
        lambda c, x, y: torch.baddbmm(c, x, y, beta=2, alpha=0.5).relu(),
        (tensor(1, 33, 48), tensor(3, 33, 64), tensor(3, 64, 48)),
        (1,),
    ),
    "batches": (lambda x, y: (x @ y).tanh(), (tensor(3, 33, 64), tensor(3, 64, 48)), (1, 0)),
    "batches of batches": (lambda x, y: (x @ y).tanh(), (tensor(2, 3, 33, 64), tensor(2, 3, 64, 48)), (1, 0)),
    "heads are written where they belong": (heads, (tensor(2, 9, 64), tensor(64, 64)), (1,)),
    "converted operands": (lambda x, y: (x.half() @ y.half()).tanh(), (X, Y), (1, 0)),
    "computed operands": (lambda x, y: ((x + 1) @ y.exp()).tanh(), (X, Y), (1, 0)),
    "not a number beyond the last": (lambda x, y: (x.log() @ y).tanh(), (X.abs() + 0.1, Y), (1, 0)),
    "expanded": (lambda x, y: (x[:, :1].expand(33, 70) @ y).tanh(), (X, Y), (1, 0)),
    "expanded, without a rest": (lambda x, y: (x[:, :1].expand(33, 64) @ y[:64]).tanh(), (X, Y), (1, 0)),
    "a tensor times itself": (lambda x: (x @ x.T * 0.1).tanh(), (tensor(33, 70),), (1, 1)),
    "a vector times itself": (lambda v: (v.expand(33, 70) @ v[:, None].expand(70, 48)).tanh(), (constant(70),), (1, 0)),
    "a product alone": (lambda x, y: x @ y, (tensor(33, 64), tensor(64, 48)), (0, 0)),
    "and a sum": (lambda x, y, c: torch.addmm(c, x, y), (tensor(33, 64), tensor(64, 48), tensor(48)), (0, 0)),
    "and a view": (lambda x, y: (x @ y).view(3, 11, 48).transpose(0, 1), (tensor(33, 64), tensor(64, 48)), (0, 0)),
    "only reduced": (lambda x, y: (x @ y).tanh().sum(1), (constant(33, 64), constant(64, 48)), (0, 0)),
    "double precision": (lambda x: (x @ x.T) * 2, (tensor(7, 9, dtype=torch.float64),), (0, 0)),
    "complex numbers": (lambda x: (x @ x.T) * 2, (tensor(7, 9, dtype=torch.complex64),), (0, 0)),
    "integers": (lambda x: (x @ x.T) * 2, (torch.arange(63).view(7, 9),), (0, 0)),
    "a softmax of what was stored": (scores, (constant(33, 64), tensor(64, 48), tensor(33, 48)), (1,)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str) -> None:
    function, inputs, kernels = PRODUCTS[name]
    assert fused(function, *inputs)[: len(kernels)] == kernels


@pytest.mark.parametrize("choice, kernels", [("never", 0), ("epilogue", 1), ("always", 2)])
def test_choices(choice: Matmul, kernels: int) -> None:
    inputs = tensor(33, 64, grad=False), tensor(64, 48, grad=False), tensor(48, 64, grad=False)
    graphs = captured(lambda x, y, z: (x @ y).tanh() @ z, inputs, Choices(matmul=choice)).graphs
    finish(graphs, 1, None)
    assert graphs.forward is not None
    assert sum("template_kernel" in str(n.target) for n in graphs.forward.nodes) == kernels


@pytest.mark.parametrize(
    "dtype, calls", [(torch.float32, ["aten.mm.default"]), (torch.bfloat16, ["aten.addmm.default"])], ids=str
)
def test_a_kernel_that_follows_a_product_adds_its_bias(dtype: torch.dtype, calls: list[str]) -> None:
    inputs = [tensor(*s, dtype=dtype).detach() for s in ((1, 4096), (16, 4096), (16,))]
    made = generated(captured(lambda x, w, b: F.linear(x, w, b).relu(), inputs))
    assert [str(s.target) for s in made.programs[0].steps if isinstance(s, torch.fx.Node)] == calls
