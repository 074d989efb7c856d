"""Matmuls whose operands TMA reads: which those are, and that they are right where tiles end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from inline_snapshot import snapshot
from interpreted import captured, checked, generated, loaded
from parameters import some

from fx_lsp.choices import Choices
from fx_lsp.codegen.ir.kernel import KernelLaunch

TMA, WITHOUT = Choices(), Choices(tma="no")


def tensor(*shape: int, dtype: torch.dtype = torch.bfloat16, grad: bool = True) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_(grad)


def described(function: Callable[..., Any], *inputs: torch.Tensor, choices: Choices = TMA) -> list[str]:
    """What the descriptors of a file are made of, once it was found right."""
    made = checked(function, inputs, choices)
    kernels = [s.kernel for p in made.programs for s in p.steps if isinstance(s, KernelLaunch)]
    calls = [line.text for k in kernels for line in k.printed() if "tl.make_tensor_descriptor" in line.text]
    return [call.split("(", 1)[1].removesuffix(")") for call in calls]


torch.manual_seed(0)


SIZES = [(129, 136, 264), (1000, 8, 328), (128, 128, 512), (127, 264, 264), (65, 40, 264)]


@pytest.mark.parametrize("m, n, k", some(SIZES, [SIZES[0], SIZES[4]], several=True))
def test_sizes(m: int, n: int, k: int) -> None:
    assert len(described(lambda x, y: torch.relu(x @ y), tensor(m, k), tensor(k, n))) >= 2


def test_each_operand_is_read_along_its_memory() -> None:
    x, y = tensor(136, 264, grad=False), tensor(264, 80, grad=False)
    rows, columns = "[M, K], [K, 1], [BLOCK_M, BLOCK_K]", "[K, N], [N, 1], [BLOCK_K, BLOCK_N]"
    turned = "[K, M], [M, 1], [BLOCK_K, BLOCK_M]", "[N, K], [K, 1], [BLOCK_N, BLOCK_K]"
    assert described(lambda x, y: (x @ y).relu(), x, y) == [f"arg0_1_ptr, {rows}", f"arg1_1_ptr, {columns}"]
    assert described(lambda x, y: (x.T @ y.T).relu(), x.T.contiguous(), y.T.contiguous()) == [
        f"arg0_1_ptr, {turned[0]}",
        f"arg1_1_ptr, {turned[1]}",
    ]
    part = lambda x, y: (x[:, :260] @ y[:260]).relu()  # noqa: E731
    assert described(part, x, y)[0] == "arg0_1_ptr, [M, K], [264, 1], [BLOCK_M, BLOCK_K]"


def test_rows_that_go_to_several_heads() -> None:
    def heads(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return (x @ weight).view(2, 48, 4, 16).transpose(1, 2).contiguous() * 0.25

    assert len(described(heads, tensor(2, 48, 264), tensor(264, 64))) == 2


@pytest.mark.parametrize(
    "function, shapes, read",
    [
        (
            lambda x, y: (x @ y).relu(),
            ((3, 136, 264), (3, 264, 72)),
            ["[3, M, K], [M * K, K, 1], [1, BLOCK_M, BLOCK_K]", "[3, K, N], [K * N, N, 1], [1, BLOCK_K, BLOCK_N]"],
        ),
        (
            lambda x, y: (x @ y.mT).relu(),
            ((3, 129, 264), (3, 72, 264)),
            ["[3, M, K], [M * K, K, 1], [1, BLOCK_M, BLOCK_K]", "[3, N, K], [N * K, K, 1], [1, BLOCK_N, BLOCK_K]"],
        ),
        (
            lambda x, y: (x.transpose(1, 2) @ y).relu(),
            ((2, 136, 3, 264), (2, 3, 264, 72)),
            [
                "[2, 3, M, K], [107712, K, 792, 1], [1, 1, BLOCK_M, BLOCK_K]",
                "[2, 3, K, N], [57024, K * N, N, 1], [1, 1, BLOCK_K, BLOCK_N]",
            ],
        ),
        (
            lambda x, y: (x @ y.expand(3, 264, 72)).relu(),
            ((3, 136, 264), (264, 72)),
            ["[3, M, K], [M * K, K, 1], [1, BLOCK_M, BLOCK_K]", "[K, N], [N, 1], [BLOCK_K, BLOCK_N]"],
        ),
    ],
    ids=["contiguous", "turned", "heads between rows", "shared"],
)
def test_batches(function: Callable[..., Any], shapes: tuple[tuple[int, ...], ...], read: list[str]) -> None:
    inputs = [tensor(*s, grad=False) for s in shapes]
    assert [call.partition(", ")[2] for call in described(function, *inputs)] == read


def test_batches_forward_and_backward() -> None:
    assert len(described(lambda x, y: torch.relu(x @ y), tensor(2, 129, 264), tensor(2, 264, 136))) >= 2


def test_a_tensor_times_itself() -> None:
    assert len(described(lambda x: (x @ x.T * 0.1).relu(), tensor(136, 264, grad=False))) == 2


def test_a_residual_that_is_an_operand() -> None:
    assert len(described(lambda x, w: x + (x @ w) * 0.5, tensor(136, 264, grad=False), tensor(264, 264))) == 2


@pytest.mark.parametrize(
    "function, shapes",
    [
        (lambda x, y: (x @ y).relu(), ((64, 264), (264, 64))),
        (lambda x, y: (x @ y).relu(), ((136, 64), (64, 72))),
        (lambda x, y: (x @ y).relu(), ((136, 260), (260, 72))),
        (lambda x, y: (x @ y).relu(), ((2, 136, 260), (2, 260, 72))),
        (lambda x, y: (x.exp() @ y).relu(), ((136, 264), (264, 72))),
        (lambda x, y: (x[:, 1:265] @ y).relu(), ((136, 272), (264, 72))),
        (lambda x, y: (x[:, ::2] @ y).relu(), ((136, 528), (264, 72))),
        (lambda x, y: (x[:, :1].expand(136, 264) @ y).relu(), ((136, 8), (264, 72))),
    ],
    ids=[
        "few rows",
        "little to sum",
        "odd strides",
        "odd strides in batches",
        "computed",
        "behind an odd place",
        "steps",
        "expanded",
    ],
)
def test_what_tma_does_not_read(function: Callable[..., Any], shapes: tuple[tuple[int, ...], ...]) -> None:
    inputs = [tensor(*s, grad=False) for s in shapes]
    assert described(function, *inputs) == []


def test_float32_and_those_who_do_not_want_it_load_elements() -> None:
    single = [tensor(136, 264, dtype=torch.float32), tensor(264, 80, dtype=torch.float32)]
    assert described(lambda x, y: (x @ y).relu(), *single) == []
    assert described(lambda x, y: (x @ y).relu(), *[t.half() for t in single], choices=WITHOUT) == []


def test_what_does_not_begin_where_tma_reads_is_copied() -> None:
    x, y = (tensor(136 * 264 + 1, grad=False) for _ in range(2))
    x, y = x[1:].view(136, 264), y[1:].view(264, 136)
    made = generated(captured(lambda x, y: (x @ y).relu(), (x.clone(), y.clone())))
    module = loaded(made)
    assert x.data_ptr() % 16 and "aligned(arg0_1)" in made.text
    copied = module.aligned(x)
    assert copied.data_ptr() % 16 == 0 and torch.equal(copied, x) and copied.stride() == x.stride()
    assert module.aligned(copied) is copied
    torch.testing.assert_close(module.f(x, y), (x @ y).relu(), rtol=2e-2, atol=2e-1)


@pytest.mark.parametrize("depth, kernels", [(1024, (1, 1)), (2048, (1, 0)), (4096, (1, 0)), (8192, (0, 0))])
def test_how_deep_a_product_is_worth_a_kernel(depth: int, kernels: tuple[int, int]) -> None:
    inputs = [tensor(*shape, grad=False) for shape in ((2048, depth), (2048, depth), (2048,))]

    def count(choices: Choices) -> int:
        found = captured(lambda x, w, b: F.gelu(F.linear(x, w, b)), inputs, choices)
        return generated(found, choices=choices).text.count("tl.dot(")

    assert (count(TMA), count(WITHOUT)) == kernels


@pytest.mark.parametrize("depth, kernels", [(1024, 1), (8192, 0)])
def test_a_product_that_is_stored_besides_is_worth_one_where_it_sums_little(depth: int, kernels: int) -> None:
    inputs = [tensor(*shape) for shape in ((2048, depth), (2048, depth), (2048,))]
    found = captured(lambda x, w, b: F.gelu(F.linear(x, w, b)), inputs)
    assert generated(found).text.count("tl.dot(") == kernels


def test_the_kernel() -> None:
    inputs = [tensor(*shape, grad=False) for shape in ((300, 520), (130, 520), (130,))]
    made = generated(captured(lambda x, w, b: F.gelu(F.linear(x, w, b)), inputs))
    (kernel,) = (s.kernel for s in made.programs[0].steps if isinstance(s, KernelLaunch))
    assert "\n".join(line.text for line in kernel.printed()[1:]) == snapshot("""\
    num_m, num_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    # TMA reads whole tiles, with zeros out of bounds
    arg0_1_tiles = tl.make_tensor_descriptor(arg0_1_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    arg1_1_tiles = tl.make_tensor_descriptor(arg1_1_ptr, [N, K], [K, 1], [BLOCK_N, BLOCK_K])
    for tile in tl.range(tl.program_id(0), num_m * num_n, tl.num_programs(0), flatten=True):
        # programs that run at the same time share operands in the L2 cache
        pid_n, pid_m = tl.swizzle2d(tile // num_m, tile % num_m, num_n, num_m, GROUP)
        rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
        rows_mask = rows[:, None] < M
        cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
        cols_mask = cols[None, :] < N
        acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for start in range(0, K, BLOCK_K):
            arg0_1 = arg0_1_tiles.load([pid_m * BLOCK_M, start])
            arg1_1 = arg1_1_tiles.load([pid_n * BLOCK_N, start]).T
            acc = tl.dot(arg0_1, arg1_1, acc)
        arg2_1 = tl.load(arg2_1_ptr + cols[None, :], mask=cols_mask, eviction_policy="evict_last").to(tl.float32)
        addmm = acc + arg2_1
        mul_2 = addmm * 0.5 * one_plus_erf(addmm * 0.7071067811865476)
        tl.store(convert_element_type_4_ptr + rows[:, None] * N + cols[None, :], mul_2, mask=rows_mask & cols_mask)\
""")
