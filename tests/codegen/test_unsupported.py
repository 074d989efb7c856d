"""What stays a call of PyTorch says why, at the call and as data, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import fill
from typing import Any

import pytest

pytest.importorskip("triton")

import torch
import torch.nn.functional as F
from inline_snapshot import snapshot
from interpreted import captured, generated, wrong

from fx_lsp.choices import Choices
from fx_lsp.codegen.file.module import GeneratedFile


def file_of(function: Callable[..., Any], *inputs: torch.Tensor, **chosen: Any) -> GeneratedFile:
    choices = Choices(**chosen)
    return generated(captured(function, inputs, choices), choices=choices)


def said(function: Callable[..., Any], *inputs: torch.Tensor, **chosen: Any) -> str:
    calls = dict.fromkeys(call.sentence for _, call in file_of(function, *inputs, **chosen).calls())
    return "\n".join(fill(sentence, 100) for sentence in calls)


def square(*, gradient: bool = False) -> torch.Tensor:
    return torch.randn(4, 4, requires_grad=gradient)


def test_complex_numbers() -> None:
    assert said(lambda x: torch.fft.fft(x * 2).abs() + 1, square())[0] == snapshot("a")


def test_sparse_tensors() -> None:
    assert said(lambda x: (x * 2).to_sparse().to_dense(), square()) == snapshot("""\
aten._to_sparse falls back to PyTorch: sparse tensors; compute with their values and indices to get
a kernel
aten._to_dense falls back to PyTorch: sparse tensors; compute with their values and indices to get a
kernel\
""")


def test_numbers_of_eight_bits() -> None:
    assert said(lambda x: x.to(torch.float8_e4m3fn).float() + 1, square()) == snapshot("""\
prims.convert_element_type falls back to PyTorch: float8 numbers; convert them before the function
to get a kernel\
""")


def test_sorting() -> None:
    assert said(lambda x: x.exp().sort()[0] + 1, square()) == snapshot(
        "aten.sort falls back to PyTorch: there is no kernel that sorts"
    )


def test_drawing() -> None:
    assert said(lambda x: torch.multinomial(x.exp(), 2) + 1, square()) == snapshot("""\
aten.multinomial falls back to PyTorch: it uses the random numbers of the library; write it with
torch.rand to get a kernel\
""")


def test_overwriting_where_indices_may_be_equal() -> None:
    where = torch.tensor([0, 0])
    assert said(lambda x, i: torch.index_put(x, (i,), x[:2]), square(), where) == snapshot("""\
aten.index_put falls back to PyTorch: its indices may contain an element twice, and one of the
values has to win; adding instead (scatter_add, accumulate=True) gets a kernel\
""")
    assert said(lambda x, i: torch.scatter(x, 0, i[:, None], x), square(), where) == snapshot("""\
aten.scatter falls back to PyTorch: its indices may contain an element twice, and one of the values
has to win; adding instead (scatter_add, accumulate=True) gets a kernel\
""")


def test_what_there_is_no_kernel_for() -> None:
    assert said(lambda x: F.max_pool2d(x * 2, 2), torch.randn(1, 2, 4, 4)) == snapshot("""\
aten.max_pool2d_with_indices falls back to PyTorch: fx-lsp has no kernel for it; write it with
arithmetic, indexing and sums to get one\
""")


def test_what_the_library_is_better_at() -> None:
    assert said(lambda x: x @ x, square()) == snapshot("""\
aten.mm is computed by PyTorch: the library is as fast for a matrix product; choose matmul=always to
get a kernel\
""")
    assert said(lambda x: F.conv2d(x * 2, x), torch.randn(1, 1, 4, 4)) == snapshot(
        "aten.convolution is computed by PyTorch: the library is faster for convolutions"
    )


def test_what_is_called_by_choice() -> None:
    assert said(lambda x: torch.tanh(x @ x), square(), matmul="never") == snapshot(
        "aten.mm is computed by PyTorch: matrix products get no kernels (option matmul=never)"
    )
    assert said(lambda x: torch.tanh(x.double() @ x.double()), square(), matmul="always") == snapshot(
        "aten.mm is computed by PyTorch: tl.dot does not support the shape or dtype of this matrix product"
    )
    assert said(lambda x: torch.tanh(x @ x), square(), engine="inductor") == ""


def test_nothing_is_said_of_what_computes_nothing() -> None:
    assert said(lambda x: (x * 2)[:, 4:], square()) == ""


def test_the_comment_stands_at_the_call_and_is_not_repeated() -> None:
    def spectra(x: torch.Tensor) -> Any:
        return torch.fft.fft(x).abs() + 1, x.sin() @ x.cos() @ x.exp(), torch.fft.fft(x.sum(0)).abs()

    file = file_of(spectra, square())
    lines = file.text.splitlines()
    begin = next(n for n, line in enumerate(lines) if line.startswith("def f_forward"))
    body = [line.strip() for line in lines[begin:] if "torch.ops" in line or line.startswith("    #")]
    assert body == snapshot(
        [
            "# falls back to PyTorch: complex numbers; split them into real and imaginary parts",
            "# (torch.view_as_real) to get a kernel",
            "_fft_r2c = torch.ops.aten._fft_r2c.default(arg0_1, [1], 0, False)",
            "abs_1 = torch.ops.aten.abs.default(_fft_r2c)",
            "# PyTorch computes it: the library is as fast for a matrix product",
            "mm = torch.ops.aten.mm.default(sin, cos)",
            "mm_1 = torch.ops.aten.mm.default(mm, exp)",
            "# falls back to PyTorch: complex numbers",
            "_fft_r2c_1 = torch.ops.aten._fft_r2c.default(sum_1, [0], 0, False)",
            "abs_2 = torch.ops.aten.abs.default(_fft_r2c_1)",
        ]
    )
    assert [lines[n - 1].strip() for n, _ in file.calls()] == [line for line in body if not line.startswith("#")]


def test_sorting_is_not_done_again_in_backward() -> None:
    def best(x: torch.Tensor) -> Any:
        return x.exp().topk(2)[0].sin()

    assert file_of(best, square(gradient=True)).text.count("aten.topk.default(") == 1


def test_a_few_places_are_overwritten_in_a_kernel() -> None:
    def gates(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return x.new_zeros(5, 9).scatter(1, places, x.softmax(-1))

    x, places = torch.randn(5, 3, requires_grad=True), torch.rand(5, 9).argsort(1)[:, :3].contiguous()
    assert said(gates, x, places) == ""
    assert wrong(gates, [x, places]) == []


def test_memory_that_is_written_slice_by_slice() -> None:
    def halves(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(4, 8)
        out[:, ::2] = x.sin()
        out[:, 1::2] = x.cos()
        return out

    assert said(halves, square(gradient=True)) == ""
    assert wrong(halves, [square(gradient=True)]) == []


def test_an_assertion_stops_the_program() -> None:
    assert said(lambda i: F.one_hot(i, 3) * 2, torch.tensor([0, 2])) == snapshot(
        "aten._assert_async is computed by PyTorch: it stops the program when a check of values fails"
    )
