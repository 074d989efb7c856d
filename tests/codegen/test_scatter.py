"""Sums into places that indices name: kernels that add with atomic operations, and what makes them deterministic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("triton")

import torch
import torch.nn.functional as F
from interpreted import below, captured, checked, floats, generated, loaded, wrong
from parameters import some

from fx_lsp.choices import Choices

HALF = (torch.bfloat16, torch.float16)


def both(*shape: int, limit: int) -> torch.Tensor:
    """Indices, some of which count from the end."""
    return torch.randint(-limit, limit, shape)


def normalized(ids: torch.Tensor, words: torch.Tensor, places: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
    x = F.embedding(ids, words, padding_idx=0) + places[: ids.size(1)]
    return F.layer_norm(x, (words.size(1),), w, b)


Case = tuple[Callable[..., Any], Callable[[int], list[torch.Tensor]]]

CASES: dict[str, Case] = {
    "embedding": (lambda i, w, s: F.embedding(i, w).mul(s).sum(), lambda n: [below(n, 5, 3), floats(n, 8), floats(8)]),
    "padding": (lambda i, w: F.embedding(i, w, padding_idx=2) * 2, lambda n: [below(3, 5, 3), floats(max(n, 3), 8)]),
    "scaled by frequency": (
        lambda i, w: F.embedding(i, w, scale_grad_by_freq=True),
        lambda n: [below(n, 5, 3), floats(n, 8)],
    ),
    "embedding and layer norm": (
        normalized,
        lambda n: [below(9, 3, n), floats(9, 16), floats(n + 2, 16), floats(16), floats(16)],
    ),
    "index_select": (lambda x, i: x.index_select(1, i).sin(), lambda n: [floats(4, n), below(n, 7)]),
    "gather": (lambda x, i: x.gather(1, i) * 2, lambda n: [floats(5, n), below(n, 4, 3)]),
    "indexing": (lambda x, i: x[i] * 2, lambda n: [floats(n, 6), both(4, 2, limit=n)]),
    "indexing of columns": (lambda x, i: x[:, i].exp(), lambda n: [floats(4, n), both(7, limit=n)]),
    "indices apart": (lambda x, i, j: x[i, :, j], lambda n: [floats(n, 5, 4), both(7, 1, limit=n), both(3, limit=4)]),
    "indices together": (lambda x, i, j: x[:, i, j], lambda n: [floats(2, n, 4), both(7, limit=n), both(7, limit=4)]),
    "take": (lambda x, i: x.take(i) * 2, lambda n: [floats(n, 3), below(n, 7)]),
    "upsampling": (lambda x: F.interpolate(x, scale_factor=2.0), lambda n: [floats(1, 2, n % 9 + 2, 3)]),
    "scatter_add": (
        lambda x, i, y: x.scatter_add(1, i, y.exp()),
        lambda n: [floats(4, n), below(n, 3, 5), floats(3, 5)],
    ),
    "scatter_reduce": (
        lambda x, i, y: x.scatter_reduce(0, i, y * 2, "sum"),
        lambda n: [floats(n, 3), below(n, 5, 3), floats(5, 3)],
    ),
    "index_add": (
        lambda x, i, y: x.index_add(0, i, y * 2, alpha=3),
        lambda n: [floats(n, 5), below(n, 7), floats(7, 5)],
    ),
    "index_put": (
        lambda x, i, y: x.index_put((i,), y.tanh(), accumulate=True) * 2,
        lambda n: [floats(n, 5), both(7, limit=n), floats(5)],
    ),
    "one value for all": (
        lambda x, i: x.index_put((i,), x.new_ones(()), accumulate=True),
        lambda n: [floats(n), below(n, 9)],
    ),
    "a sum of which the rows are reduced": (
        lambda x, i: x.new_zeros(3, 40).index_add(0, i, x.softmax(-1)).logsumexp(-1),
        lambda n: [floats(n, 40), below(3, n)],
    ),
}


@pytest.mark.parametrize("size", some((1, 7, 129), (7, 129)))
@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients(name: str, size: int) -> None:
    function, make = CASES[name]
    torch.manual_seed(size)
    inputs = make(size)
    assert "torch.ops.aten" not in checked(function, inputs).text


@pytest.mark.parametrize("dtype", some(HALF, (torch.bfloat16,)), ids=str)
@pytest.mark.parametrize("name", CASES)
def test_half_precision_is_summed_in_single(name: str, dtype: torch.dtype) -> None:
    function, make = CASES[name]
    torch.manual_seed(0)
    inputs = [t.detach().to(dtype).requires_grad_() if t.is_floating_point() else t for t in make(33)]
    assert wrong(function, inputs) == []


def test_integers_wrap_as_those_of_pytorch_do() -> None:
    def counted(x: torch.Tensor, i: torch.Tensor) -> Any:
        ones = torch.ones_like(i)
        return x.index_put((i,), ones.to(x.dtype) * 100, accumulate=True), torch.zeros_like(i).scatter_add(0, i, ones)

    for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64):
        assert wrong(counted, [torch.arange(9).to(dtype), below(9, 9)]) == []


def test_many_values_for_one_place() -> None:
    inputs = [floats(3000, 5), torch.zeros(3000, dtype=torch.long)]
    assert wrong(lambda x, i: x.new_zeros(2, 5).index_add(0, i, x.sin()), inputs) == []


def test_many_small_values_in_half_precision_are_not_lost() -> None:
    def summed(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x.new_zeros(8, 4).index_add(0, i, x)

    x, i = torch.full((4000, 4), 0.01, dtype=torch.bfloat16), torch.zeros(4000, dtype=torch.long)
    file = generated(captured(summed, [x, i]))
    assert "torch.zeros(8, 4, dtype=torch.float32," in file.text
    found = loaded(file).f(x, i)
    torch.testing.assert_close(found[0].double(), x.double().sum(0), rtol=1e-2, atol=0)


def backward_of(text: str) -> str:
    return text.partition("def f_backward(")[2].partition("\nclass _F")[0]


def test_what_makes_the_values_is_in_the_kernel_that_adds_them() -> None:
    inputs = [below(11, 3, 5), floats(11, 8), floats(8)]
    text = generated(captured(CASES["embedding"][0], [*inputs[:2], inputs[2].detach()])).text
    assert backward_of(text).count("f_backward_kernel") == 1
    assert "torch.zeros(11, 8," in text


ONE_OF_EACH_LINE: dict[str, Callable[..., torch.Tensor]] = {
    "cross entropy": F.cross_entropy,
    "negative log likelihood": lambda x, i: F.cross_entropy(x.view(5, 9, 3), i.view(5, 3)),
    "gather": lambda x, i: x.exp().gather(1, i[:5, None]).log().mean(),
    "softmax without one": lambda x, i: x.softmax(1) - torch.zeros_like(x).scatter(1, i[: x.size(0), None], 1.0),
}


@pytest.mark.parametrize("name", ONE_OF_EACH_LINE)
def test_one_element_of_each_line_is_found_by_comparing_indices(name: str) -> None:
    rows = 15 if name == "cross entropy" else 5
    text = checked(ONE_OF_EACH_LINE[name], [floats(rows, 27), below(9, 15)]).text
    assert backward_of(text).count("f_backward_kernel") == 1
    assert "torch.zeros(" not in text


def bert(ids: Any, types: Any, places: Any, words: Any, positions: Any, kinds: Any, w: Any, b: Any) -> Any:
    x = F.embedding(ids, words, padding_idx=0) + F.embedding(places, positions) + F.embedding(types, kinds)
    return F.layer_norm(x, (words.size(1),), w, b)


def bert_inputs() -> list[torch.Tensor]:
    tables = [floats(11, 16), floats(40, 16), floats(2, 16)]
    return [below(11, 4, 33), below(2, 4, 33), torch.arange(33)[None], *tables, floats(16), floats(16)]


def test_three_embeddings_and_a_layer_norm() -> None:
    torch.manual_seed(0)
    inputs = bert_inputs()
    text = checked(bert, inputs).text
    assert "torch.ops.aten" not in text
    assert text.count("tl.atomic_add(") == 2  # words and positions; the two rows of kinds are sums


def test_a_few_rows_are_reductions_of_their_own() -> None:
    for inputs in ([both(500, limit=3), floats(500, 9)], [below(1, 500), floats(1, 9)]):
        function = lambda i, y: y.new_zeros(3, 9).index_put((i,), y.sin(), accumulate=True)  # noqa: E731
        assert "tl.atomic_add(" not in checked(function, inputs).text


def test_rows_of_a_table_are_read_along_the_table() -> None:
    ids, tables = below(11, 4, 32), [floats(11, 128), floats(64, 128), floats(128), floats(128)]
    text = generated(captured(normalized, [ids, *tables])).text
    assert "tl.load(primals_2_ptr + cols + primals_1 * N)" in text


def test_padding_is_left_out_and_not_added_as_zero() -> None:
    function, make = CASES["padding"]
    text = generated(captured(function, make(9))).text
    (line,) = [line for line in text.splitlines() if "!= 2" in line]
    assert "mask=" in line and "tl.where" not in text


def test_tuning_begins_at_zero_each_time() -> None:
    function, make = CASES["gather"]
    text = generated(captured(function, make(9))).text
    assert text.count('reset_to_zero=["') == 1


def test_sums_that_have_to_be_the_same_in_every_run() -> None:
    function, make = CASES["embedding"]
    inputs, choices = make(9), Choices(deterministic="yes")
    file = checked(function, inputs, choices)
    assert "tl.atomic_add" not in file.text and "index_put.default" in file.text
    assert "# PyTorch computes it: kernels add in a different order in every run" in file.text


def test_atomic_operations_are_refused_where_pytorch_would(monkeypatch: pytest.MonkeyPatch) -> None:
    function, make = CASES["gather"]
    inputs = make(9)
    out = loaded(generated(captured(function, inputs))).f(*inputs)
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    with pytest.raises(RuntimeError, match="f_backward has no deterministic implementation: it uses atomic"):
        torch.autograd.grad(out.sum(), inputs[0], retain_graph=True)
    monkeypatch.setattr(torch, "is_deterministic_algorithms_warn_only_enabled", lambda: True)
    with pytest.warns(UserWarning, match="f_backward has no deterministic implementation"):
        torch.autograd.grad(out.sum(), inputs[0])


def test_sums_of_integers_are_the_same_in_every_run() -> None:
    text = generated(captured(lambda i: torch.zeros_like(i).scatter_add(0, i, i), [below(9, 9)])).text
    assert "tl.atomic_add" in text and "alert_not_deterministic" not in text


def test_what_adds_in_another_way_stays_a_call() -> None:
    def averaged(x: torch.Tensor, i: torch.Tensor) -> Any:
        return x.scatter_reduce(0, i, x * 2, "mean"), x.scatter_reduce(0, i, x, "sum", include_self=False)

    inputs = [floats(9).detach(), below(9, 9)]
    assert checked(averaged, inputs).text.count("aten.scatter_reduce.two") == 2
