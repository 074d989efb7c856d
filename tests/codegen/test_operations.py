"""Operations become kernels that compute what PyTorch computes, forward and backward, on fresh random inputs.

Everything runs under Triton's interpreter, with NaN in the memory that it allocates, and is compared with float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("triton")

import torch
import torch.nn.functional as F
from interpreted import below, captured, checked, compared, floats, generated, kernels_in, loaded, wrong
from parameters import some

from fx_lsp.codegen.graph.decompositions import composites_decomposed

SIZES = (1, 7, 127, 129, 1000)
ROW = 20_000
"""A row that no program holds as a whole."""

Case = tuple[Callable[..., Any], Callable[[int], list[torch.Tensor]]]


def bools(*shape: int) -> torch.Tensor:
    return torch.rand(shape) > 0.5


def integers(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x // y, x % y, torch.fmod(x, y), x / y, torch.div(x, y, rounding_mode="trunc"), x & y, x << 2, x.pow(3), -x


def promoted(i: torch.Tensor, b: torch.Tensor, x: torch.Tensor) -> Any:
    return (
        i + 0.5,
        i * b,
        b + b,
        x * i,
        x + 2,
        i / 2,
        x.double() * b,
        i.float().sin(),
        (i > x) | b,
        torch.add(i, b, alpha=3),
    )


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def windows(x: torch.Tensor) -> Any:
    return F.pad(x, (2, 1, 0, 3), value=1.5), x.unfold(0, 1, 1) * 2, x.roll(3, 1) + x.flip(0), x.repeat(2, 3).tril(1)


def rejoined(x: torch.Tensor, y: torch.Tensor) -> Any:
    return torch.cat([x * 2, y.T, x], 0).sin(), torch.stack([x, x.exp()], 1)[:, 0], x[::2, 1:] * 3, x.diagonal() + 1


def picked(x: torch.Tensor, rows: torch.Tensor, places: torch.Tensor) -> Any:
    return x[rows, rows % x.shape[1]] * 2, x.index_select(0, rows).exp(), x.gather(1, places), x[:, -1].neg()


def reduced(x: torch.Tensor) -> Any:
    return x.sum(-1), x.mean(0), x.amax((0, 1)), x.argmax(1), x.argmin(0), (x > 0).any(1), (x > -5).all(), x.var(-1)


def moments(x: torch.Tensor) -> Any:
    return *torch.var_mean(x, -1, correction=0), x.std(0), x.norm(dim=1), x.logsumexp(1), x.prod(1)


def rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (
        x
        * torch.rsqrt(x.to(torch.promote_types(x.dtype, torch.float32)).pow(2).mean(-1, keepdim=True) + 1e-6).to(
            x.dtype
        )
        * w
    )


def smoothed(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, target, ignore_index=3, label_smoothing=0.1)


CASES: dict[str, Case] = {
    "bias and gelu": (lambda x, b: F.gelu(x + b), lambda n: [floats(5, n), floats(n)]),
    "gelu with tanh": (lambda x: F.gelu(x, approximate="tanh"), lambda n: [floats(n)]),
    "swiglu": (lambda x, y: F.silu(x) * y, lambda n: [floats(3, n), floats(3, n)]),
    "clamp and where": (lambda x, m: torch.where(m, x.clamp(-1, 0.5), x.abs().sqrt()), lambda n: [floats(n), bools(n)]),
    "integers": (integers, lambda n: [below(100, n) - 50, below(9, n) + 1]),
    "promotion": (promoted, lambda n: [below(9, n), bools(n), floats(n)]),
    "outer broadcast": (lambda x, y, z: x * y + z, lambda n: [floats(n, 1), floats(1, 9), floats(9)]),
    "broadcast of a number": (lambda x, s: x.exp() * s - s, lambda n: [floats(2, n, 3), floats()]),
    "permutation": (lambda x: x.permute(2, 0, 1).reshape(-1, x.shape[0]) * 2, lambda n: [floats(3, 4, n)]),
    "windows": (windows, lambda n: [floats(4, n)]),
    "joined": (rejoined, lambda n: [floats(n, 4), floats(4, n)]),
    "rope": (rope, lambda n: [floats(2, n // 8 + 1, 8), floats(n // 8 + 1, 8), floats(n // 8 + 1, 8)]),
    "picked": (picked, lambda n: [floats(n, 6), below(n, 11), below(6, n, 2)]),
    "embedding": (F.embedding, lambda n: [below(n, 5, 3), floats(n, 8)]),
    "reductions": (reduced, lambda n: [floats(4, n)]),
    "moments": (moments, lambda n: [floats(6, n)]),
    "middle dimension": (lambda x: x.sum(1, keepdim=True) * x, lambda n: [floats(3, n, 5)]),
    "columns": (lambda x, y: ((x * y).sum(0), y.amax(0)), lambda n: [floats(n, 33), floats(n, 33)]),
    "integer reductions": (lambda x: (x.sum(0), x.prod(1), x.amax(), x.argmax()), lambda n: [below(3, 4, n)]),
    "running sums": (lambda x: (x.cumsum(1), x.cumprod(0)), lambda n: [floats(3, n)]),
    "softmax": (lambda x: torch.softmax(x, -1), lambda n: [floats(5, n)]),
    "softmax of columns": (lambda x: torch.log_softmax(x, 0), lambda n: [floats(n, 5)]),
    "masked softmax": (
        lambda x, m: x.masked_fill(m, -torch.inf).softmax(-1),
        lambda n: [floats(5, n), torch.arange(n) > n // 2],
    ),
    "rms_norm": (rms_norm, lambda n: [floats(5, n), floats(n)]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, b.shape, w, b), lambda n: [floats(5, n), floats(n), floats(n)]),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), lambda n: [floats(3, 4, n + 1), floats(4), floats(4)]),
    "batch_norm": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        lambda n: [floats(n + 1, 5), floats(5), floats(5)],
    ),
    "cross entropy": (F.cross_entropy, lambda n: [floats(9, n), below(n, 9)]),
    "smoothed cross entropy": (smoothed, lambda n: [floats(9, n + 9), below(n + 9, 9)]),
    "losses": (lambda x, y: F.mse_loss(x, y) + F.smooth_l1_loss(x, y), lambda n: [floats(n), floats(n)]),
}

LONG_ROWS = ("reductions", "moments", "softmax", "rms_norm", "layer_norm", "cross entropy", "integer reductions")


def check(name: str, size: int, change: Callable[[torch.Tensor], torch.Tensor] = lambda t: t) -> None:
    function, make = CASES[name]
    torch.manual_seed(size)
    inputs = [change(t).detach().requires_grad_(t.requires_grad) for t in make(size)]
    assert wrong(function, inputs) == []


@pytest.mark.parametrize("size", some(SIZES, (1, 129)))
@pytest.mark.parametrize("name", CASES)
def test_sizes(name: str, size: int) -> None:
    check(name, size)


@pytest.mark.parametrize("name", LONG_ROWS)
def test_rows_that_are_gone_through_in_steps(name: str) -> None:
    check(name, ROW)


def test_long_rows_of_which_much_is_infinite() -> None:
    x = torch.randn(4, ROW)
    x[0, :9000], x[1, 5], x[2], x[3, 7] = -torch.inf, torch.nan, -torch.inf, torch.inf
    assert wrong(lambda x: (x.softmax(-1), torch.logsumexp(x, -1), x.log_softmax(-1)), [x]) == []


@pytest.mark.parametrize("dtype", some((torch.float16, torch.bfloat16), (torch.bfloat16,)), ids=str)
@pytest.mark.parametrize("name", CASES)
def test_dtypes(name: str, dtype: torch.dtype) -> None:
    check(name, 33, lambda t: t.to(dtype) if t.is_floating_point() else t)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda t: t.mT.contiguous().mT,
    "every other": lambda t: torch.stack([t, t * 0 + 1], -1).flatten(-2)[..., ::2],
    "expanded": lambda t: t[:1].expand_as(t),
}
LAYOUTS["mixed"] = lambda t: LAYOUTS["every other" if t.shape[0] % 2 else "transposed"](t)


@pytest.mark.parametrize("layout", some(LAYOUTS, ("mixed",)))
@pytest.mark.parametrize("name", CASES)
def test_layouts(name: str, layout: str) -> None:
    check(name, 33, lambda t: LAYOUTS[layout](t.detach()) if t.ndim > 1 else t)


def test_inputs_without_elements() -> None:
    x, y = torch.randn(3, 0).requires_grad_(), torch.randn(2, 3)
    assert wrong(lambda x: (x.exp() * 2, x.sum(1), x.sum(), x.prod(0), x.mean(), torch.cat([x, x + 1]), x.T), [x]) == []
    assert wrong(lambda y: (y[:, 3:] + 1, y[:0].softmax(-1), y[1:1].sum(0) + y[0]), [y]) == []


def spread(x: torch.Tensor) -> torch.Tensor:
    return x[:, None].expand(x.shape[0], 3, x.shape[1])


SPREAD: dict[str, Callable[[torch.Tensor], Any]] = {
    "of a tensor": lambda x: spread(x).sum(),
    "of some dimensions": lambda x: (spread(x).sum((0, 1)), spread(x).sum(1), spread(x).amax((1, 2))),
    "mean": lambda x: (spread(x) * 2).mean(),
    "variance": lambda x: (spread(x).var(), *torch.var_mean(spread(x), (0, 1))),
    "product": lambda x: ((spread(x) + 1).prod(1), (spread(x[:2, :5]) + 1).prod()),
    "exponentials": lambda x: (spread(x).logsumexp((0, 1, 2)), spread(x).softmax(1)),
    "places": lambda x: (spread(x).argmax(), spread(x).cumsum(1), (spread(x) > 0).any(), (spread(x) > 9).all()),
    "beside others": lambda x: (spread(x).sum(), torch.stack([x, x * 2, x.sin()], 1).sum(), x.sum(0)),
    "a gradient": lambda x: (x.tanh() + x[0, 0]).sum(-1),
}


@pytest.mark.parametrize("name", SPREAD)
@pytest.mark.parametrize("shape", some(((6, 5), (300, 7), (1, 129)), ((300, 7),)), ids=str)
def test_sums_along_dimensions_that_nothing_varies_along(name: str, shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    assert wrong(SPREAD[name], [(torch.randn(shape) * 0.1).requires_grad_()]) == []


TURNED: dict[str, Callable[[torch.Tensor], Any]] = {
    "joined": lambda x: torch.stack([x, x * 2], 1).reshape(-1).flip(0),
    "running": lambda x: torch.cat([x, x.sin()], 1).reshape(-1).flip(0).cumsum(0),
    "twice": lambda x: x.reshape(-1).flip(0).reshape(x.shape[1], -1).flip(1).sin(),
    "transposed": lambda x: (x.t().reshape(-1).flip(0), x.flip(0, 1).t().reshape(-1)),
    "some": lambda x: x.t().reshape(-1).flip(0)[1::3],
    "product": lambda x: torch.stack([x, x * 2 + 1], 1)[:2, :, :3].prod(),
}


@pytest.mark.parametrize("name", TURNED)
@pytest.mark.parametrize("shape", some(((2, 3), (4, 6), (7, 5), (40, 33)), ((2, 3), (7, 5))), ids=str)
def test_what_is_read_backwards_across_dimensions(name: str, shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    assert wrong(TURNED[name], [torch.randn(shape).requires_grad_()]) == []


def test_running_sums_over_more_than_a_program_holds() -> None:
    integers = [below(9, 3, 50, 40) - 4, below(9, 2, ROW) - 4]
    assert wrong(lambda x, y: (x.cumsum(1) * 2, y.cumsum(-1).amax(0)), integers) == []
    assert wrong(lambda x: x.cumsum(0).exp() * x.cumprod(0), [(torch.rand(70, 33) * 0.1).requires_grad_()]) == []


ZEROS = [[], [0], [4], [16], [3, 9], [5, 6, 7], list(range(17))]


@pytest.mark.parametrize("dtype", some((torch.float32, torch.float64, torch.bfloat16), (torch.float32,)), ids=str)
@pytest.mark.parametrize("zeros", some(ZEROS, ([], [0], [3, 9], [5, 6, 7])), ids=str)
@pytest.mark.parametrize("dim", [0, 1])
def test_the_gradient_of_a_running_product_with_zeros(zeros: list[int], dim: int, dtype: torch.dtype) -> None:
    """It takes the same few kernels in every version of PyTorch, some of which loop over the elements."""
    torch.manual_seed(0)
    x = torch.randn(17, 17).masked_fill(torch.isin(torch.arange(17), torch.tensor(zeros, dtype=torch.int64)), 0)
    x[7] = torch.randn(17)
    inputs = [(x if dim else x.mT.contiguous()).to(dtype).requires_grad_()]
    with composites_decomposed():
        file = generated(captured(lambda x: x.cumprod(dim), inputs))
    assert len(kernels_in(file)) <= 5
    assert compared(loaded(file).f, lambda x: x.cumprod(dim), inputs) == []


def test_the_gradient_of_a_running_product_of_one_number() -> None:
    with composites_decomposed():
        assert wrong(lambda x: x.cumprod(0), [torch.tensor(2.5, requires_grad=True)]) == []


def test_an_index_that_a_variable_is_named_after() -> None:
    def picked_twice(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        index = x[i]
        return x[index.long() % 5] + index

    assert wrong(picked_twice, [floats(5), below(5, 9)]) == []


def test_single_numbers() -> None:
    x, y = torch.randn(()).requires_grad_(), torch.randn(1).requires_grad_()
    assert (
        wrong(lambda x, y: (x * y, x.sum(0), x.softmax(-1), y.var(correction=0), x.argmax(), y[0].exp()), [x, y]) == []
    )


SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3e38, -3e38, 1e-30, torch.inf, -torch.inf, torch.nan)


def test_special_numbers() -> None:
    x, y = (t.flatten() for t in torch.meshgrid(torch.tensor(SPECIAL), torch.tensor(SPECIAL), indexing="ij"))

    def pairs(x: torch.Tensor, y: torch.Tensor) -> Any:
        extremes = torch.maximum(x, y), torch.minimum(x, y), torch.fmax(x, y), torch.fmin(x, y), torch.atan2(x, y)
        divided = x / y, torch.copysign(x, y), torch.hypot(x, y)
        return *extremes, *divided, x == y, x < y, torch.where(x > 0, x, y), torch.pow(x, y), torch.nextafter(x, y)

    def whole(x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.fmod(x, y), torch.remainder(x, y), x // y, torch.div(x, y, rounding_mode="trunc")

    def alone(x: torch.Tensor) -> Any:
        rounded = x.round(), x.floor(), x.ceil(), x.trunc(), x.sign(), x.abs(), x.frac(), x.signbit(), *torch.frexp(x)
        curved = x.exp(), x.log(), x.sqrt(), x.tanh(), x.sigmoid(), x.erf(), x.log1p(), x.expm1(), x.relu(), x.atan()
        return *rounded, *curved, x.isnan(), x.isinf(), x.nan_to_num(), x.clamp(-1, 1), x.lgamma(), F.gelu(x), F.silu(x)

    def together(x: torch.Tensor) -> Any:
        rows = x.view(-1, len(SPECIAL))
        return rows.amax(0), rows.amin(1), rows.argmax(1), rows.sum(0), rows.isnan().any(1), rows[:, :7].prod(1)

    few = (x.abs() != 3e38) & (y.abs() != 1e-30)  # quotients that a float can hold
    for function, inputs in (
        (pairs, [x, y]),
        (whole, [x[few], y[few]]),
        (alone, [x]),
        (together, [y]),
        (together, [x]),
    ):
        assert compared(loaded(generated(captured(function, inputs))).f, function, inputs) == [], function.__name__


def test_one_plus_erf_is_as_close_as_float32_is() -> None:
    def cumulative(x: torch.Tensor) -> torch.Tensor:
        return torch.erf(x) + 1

    single = torch.linspace(-7, 7, 100_001)
    for x, helper, close in ((single, "one_plus_erf", 1.5e-7), (single.double(), "tl.erf", 1e-15)):
        file = generated(captured(cumulative, [x]))
        assert f"{helper}(" in file.text
        assert (loaded(file).f(x).double() - (x.double().erf() + 1)).abs().max() < close


def test_derivatives_of_the_gamma_function_are_as_close_as_float32_is() -> None:
    x = torch.cat([torch.linspace(-4.9, 40.0, 997), torch.logspace(-6, 30, 73), 1 + torch.linspace(-1e-3, 1e-3, 9)])

    def f(x: torch.Tensor) -> Any:
        return torch.digamma(x), torch.polygamma(1, x)

    program = loaded(generated(captured(f, [x])))
    for result, right in zip(program.f(x), f(x.double()), strict=True):
        near = right.abs() < 1e37
        assert ((result - right).abs() / (1 + right.abs()))[near].max() < 1e-6


def test_functions_of_the_library_of_a_gpu() -> None:
    """Also with a number in place of a tensor, and in double precision."""

    def f(x: torch.Tensor) -> Any:
        angles = x.asin(), x.acos(), x.atan(), x.sinh(), (x + 1).acosh(), x.asinh(), (x / 2).atanh(), torch.pow(2.5, x)
        return *angles, x.erfc(), x.erfinv(), torch.special.erfcx(x), x.lgamma(), x.i0(), torch.special.i1(x)

    for x in (torch.linspace(0.01, 0.99, 200), torch.linspace(0.01, 0.99, 200, dtype=torch.float64)):
        file = generated(captured(f, [x]))
        assert "torch.ops" not in file.text and "import libdevice" in file.text
        assert compared(loaded(file).f, f, [x]) == []


def test_a_file_is_a_library_of_operators() -> None:
    function, make = CASES["layer_norm"]
    inputs = make(7)
    module = loaded(generated(captured(function, inputs)), operators=True)
    assert compared(module.f, function, inputs) == []


def test_pooling_stays_a_call_that_exists() -> None:
    """Inductor's table makes an operation of it that no other backend has."""

    def pooled(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.nn.functional.max_pool2d(x, 2)) * 2

    inputs = [torch.randn(2, 3, 8, 8, requires_grad=True)]
    assert "aten.max_pool2d_with_indices.default" in checked(pooled, inputs).text


def test_exponentials_close_to_the_largest_number() -> None:
    x = torch.tensor([80.0, 86.0, 88.5, -86.0, 100.0])
    assert wrong(lambda x: (x.expm1(), x.sinh(), x.cosh()), [x]) == []
    small = torch.tensor([-87.0, -95.0, -100.0, -102.0, -103.5, -104.0, -1e4, -float("inf")])
    assert wrong(lambda x: (x.expm1(), torch.nn.functional.elu(x) + 1), [small]) == []
