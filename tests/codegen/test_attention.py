"""Attention, however it is written out, becomes kernels that never hold all scores; what is unlike it is left alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from interpreted import captured, checked, error, exact, generated, kernels_in, loaded, results, wrong
from parameters import some

from fx_lsp.codegen.graph.decompositions import composites_decomposed
from fx_lsp.codegen.ir.node_facts import facts_of
from fx_lsp.codegen.ir.template import AttentionForward, AttentionGradients, AttentionScoreSum, MatmulTemplate

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def tensor(*sizes: int, dtype: torch.dtype = torch.float32, gradient: bool = True) -> torch.Tensor:
    return torch.randn(*sizes).to(dtype).requires_grad_(gradient)


def plain(q, k, v):
    return torch.softmax(q @ k.transpose(-2, -1) * q.size(-1) ** -0.5, -1) @ v


def causal(q, k, v):
    scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
    keep = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).tril()
    return torch.softmax(scores.masked_fill(~keep, float("-inf")), -1) @ v


def causal_after_others(q, k, v):
    """Queries that come after keys which all of them may see."""
    keep = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).tril(k.size(-2) - q.size(-2))
    return torch.softmax((q @ k.transpose(-2, -1)).masked_fill(~keep, float("-inf")), -1) @ v


def causal_by_index(q, k, v):
    rows, cols = torch.arange(q.size(-2))[:, None], torch.arange(k.size(-2))[None, :]
    scores = torch.where(cols > rows, float("-inf"), q @ k.transpose(-2, -1))
    return torch.softmax(scores, -1) @ v


def windowed(q, k, v):
    rows, cols = torch.arange(q.size(-2))[:, None], torch.arange(k.size(-2))[None, :]
    keep = (cols <= rows) & (cols > rows - 16)
    return torch.softmax((q @ k.transpose(-2, -1)).masked_fill(~keep, float("-inf")), -1) @ v


def soft_capped(q, k, v):
    return torch.softmax(30 * torch.tanh(q @ k.transpose(-2, -1) / 30), -1) @ v


def sloped(q, k, v):
    """ALiBi: scores fall with the distance, for each head at its own rate."""
    distance = torch.arange(k.size(-2))[None, :] - torch.arange(q.size(-2))[:, None]
    slopes = 2.0 ** -torch.arange(1, q.size(1) + 1)
    return torch.softmax(q @ k.transpose(-2, -1) + (slopes[:, None, None] * distance).to(q.dtype), -1) @ v


def grouped(q, k, v):
    share = q.size(1) // k.size(1)
    return causal(q, k.repeat_interleave(share, 1), v.repeat_interleave(share, 1))


def split_heads(x, w):
    batch, length, width = x.shape
    q, k, v = (x @ w).view(batch, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
    return plain(q, k, v).transpose(1, 2).reshape(batch, length, width)


def fused(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> bool:
    """Whether neither products nor scores are there as a whole, once the file was found right."""
    text = checked(function, inputs).text
    return "running_max" in text and "aten.bmm" not in text and "aten.mm" not in text


def nothing_first(q, k, v):
    """The first row sees nothing: it is NaN, as in PyTorch."""
    keep = torch.arange(k.size(-2))[None, :] < torch.arange(q.size(-2))[:, None]
    return torch.softmax((q @ k.transpose(-2, -1)).masked_fill(~keep, float("-inf")), -1) @ v


def biased(q, k, v, bias):
    return torch.softmax(q @ k.transpose(-2, -1) + bias, -1) @ v


def best_only(q, k, v, gate):
    """A mask from the indices of a sort, which a library computes."""
    keep = torch.zeros_like(gate, dtype=torch.bool).scatter(-1, gate.topk(3, -1).indices, True)
    return torch.softmax((q @ k.transpose(-2, -1)).masked_fill(~keep, float("-inf")), -1) @ v


def dropped(q, k, v, keep):
    return (torch.softmax(q @ k.transpose(-2, -1), -1) * keep) @ v


def windowed_bias(q, k, v, bias, mask):
    """As in Swin: windows in a batch of images, with a bias for each head, and a mask for each window."""
    scores = (q @ k.transpose(-2, -1) + bias).view(2, 4, 2, 49, 49) + mask[None, :, None]
    return torch.softmax(scores.view(8, 2, 49, 49), -1) @ v


USUAL, ROWS = [(2, 2, 64, 32)] * 3, [(2, 64, 32)] * 3
FUSED: dict[str, tuple[Callable[..., torch.Tensor], list[tuple[int, ...]]]] = {
    **{f.__name__: (f, USUAL) for f in (plain, causal, causal_by_index, windowed, soft_capped, sloped)},
    "odd sizes": (causal, [(1, 2, 100, 24), (1, 2, 70, 24), (1, 2, 70, 24)]),
    "odd sizes, wide values": (causal, [(1, 2, 33, 16), (1, 2, 130, 16), (1, 2, 130, 48)]),
    "odd sizes, narrow values": (causal, [(1, 2, 129, 40), (1, 2, 64, 40), (1, 2, 64, 8)]),
    "grouped": (grouped, [(2, 4, 64, 32), (2, 2, 64, 32), (2, 2, 64, 32)]),
    "best keys": (best_only, [*ROWS, (2, 64, 64)]),
    "without a batch": (plain, [(64, 32), (96, 32), (96, 48)]),
    "windows": (windowed_bias, [*[(8, 2, 49, 16)] * 3, (2, 49, 49), (4, 49, 49)]),
    "weights times a mask": (dropped, [*USUAL, (2, 2, 64, 64)]),
    "mask": (biased, [*USUAL, (2, 1, 64, 64)]),
    "bias of a head": (biased, [*[(3, 2, 64, 32)] * 3, (2, 64, 64)]),
    "bias of all": (biased, [*[(3, 2, 64, 32)] * 3, (3, 2, 64, 64)]),
    "bias of a batch": (biased, [*[(3, 2, 64, 32)] * 3, (3, 1, 64, 64)]),
    "bias of a batch of one": (biased, [*[(3, 2, 64, 32)] * 3, (1, 2, 64, 64)]),
    "bias of nobody": (biased, [*[(3, 2, 64, 32)] * 3, (64, 64)]),
}
MASKED = ("windows", "weights times a mask", "mask")
"""Those whose last input has no gradient."""
IN_BF16 = ("causal", "sloped", "bias of all", "bias of a batch of one", "bias of nobody")
CASES = [(name, "bf16" if name in IN_BF16 else "f32") for name in FUSED]


@pytest.mark.parametrize(("name", "dtype"), some(product(FUSED, DTYPES), CASES, several=True), ids=str)
def test_outputs_and_gradients(name: str, dtype: str) -> None:
    function, shapes = FUSED[name]
    inputs = [tensor(*shape, dtype=DTYPES[dtype]) for shape in shapes]
    inputs[-1].requires_grad_(name not in MASKED)
    assert fused(function, *inputs)


@pytest.mark.parametrize(
    "function, shapes", [(causal, USUAL), (nothing_first, ROWS), (biased, [*USUAL, (2, 1, 64, 64)])]
)
def test_for_inference_alone(function: Callable[..., torch.Tensor], shapes: list[tuple[int, ...]]) -> None:
    assert fused(function, *[tensor(*shape, gradient=False) for shape in shapes])


def test_rows_that_are_masked_as_a_whole_with_the_least_number() -> None:
    """Their weights are all alike, as PyTorch has them, and not the difference of two infinities."""
    least = torch.finfo(torch.float32).min

    def padded(q, k, v, mask):
        return torch.softmax(q @ k.transpose(-2, -1) * 0.25 + mask, -1) @ v

    def filled(q, k, v, mask):
        keep = torch.arange(q.size(-2))[:, None] >= 5
        return torch.softmax((q @ k.transpose(-2, -1) * 0.25).masked_fill(~keep, least), -1) @ v + mask.sum()

    inputs = [tensor(1, 2, 64, 16) for _ in range(3)]
    mask = torch.zeros(64, 64)
    mask[:5] = least
    for function in (padded, filled):
        assert fused(function, *inputs, mask)


BOUNDS = [(64, 192), (192, 64), (128, 128), (64, 150)]
FEW_BOUNDS = [(causal, 64, 192), (causal, 192, 64), (causal_by_index, 64, 150), (causal_after_others, 64, 150)]


@pytest.mark.parametrize(
    ("function", "rows", "cols"),
    some([(f, *b) for f in (causal, causal_by_index, causal_after_others) for b in BOUNDS], FEW_BOUNDS, several=True),
)
def test_only_tiles_on_the_bound_of_a_causal_mask_are_masked(
    function: Callable[..., torch.Tensor], rows: int, cols: int
) -> None:
    if function is causal_after_others and rows > cols:
        pytest.skip("the first queries would see nothing")
    text = checked(function, [tensor(1, 2, size, 16) for size in (rows, cols, cols)]).text
    forward, _, backward = text.partition("_backward_kernel")
    assert re.search(
        r"if start \+ COLS > tl.program_id\(0\) \* ROWS( [+-] \d+)?:\n +masked = tl.where\(\s*cols", forward
    )
    assert re.search(r"if start < \(tl.program_id\(0\) \+ 1\) \* COLS( [+-] \d+)?:\n +masked", backward)


def test_causal_programs_leave_out_what_is_masked() -> None:
    inputs = [tensor(2, 2, 64, 32) for _ in range(3)]
    lines = [line.strip() for line in generated(captured(causal, inputs)).text.split("\n")]
    assert [line for line in lines if line.startswith("for start in range")] == [
        "for start in range(0, tl.minimum(64, (tl.program_id(0) + 1) * ROWS), COLS):",
        "for start in range((tl.program_id(0) * COLS // ROWS) * ROWS, 64, ROWS):",
        "for start in range(0, tl.minimum(64, (tl.program_id(0) + 1) * ROWS), COLS):",
    ]


def test_weights_that_are_returned_are_made_as_a_whole() -> None:
    def with_weights(q, k, v):
        weights = torch.softmax(q @ k.transpose(-2, -1), -1)
        return weights @ v, weights

    assert not fused(with_weights, *[tensor(2, 2, 64, 32) for _ in range(3)])


def test_a_bias_by_distance_of_odd_sizes_under_a_causal_mask() -> None:
    """As in T5: a table of a number for each head and bucket of distances."""

    def relative(q, k, v, table, buckets):
        bias = F.embedding(buckets, table).permute(2, 0, 1)[None]
        keep = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).tril()
        scores = (q @ k.transpose(-2, -1) + bias).masked_fill(~keep, float("-inf"))
        return torch.softmax(scores.float(), -1).to(q.dtype) @ v

    distances = (torch.arange(70)[:, None] - torch.arange(65)[None, :]).clamp(-15, 15) + 15
    inputs = [tensor(2, 3, 70, 24), tensor(2, 3, 65, 24), tensor(2, 3, 65, 40), tensor(31, 3), distances]
    text = checked(relative, inputs).text
    assert "running_max" in text and "aten.bmm" not in text and "tl.atomic_add(" in text


def test_the_gradient_of_slopes_is_as_exact_as_that_of_eager() -> None:
    """It sums numbers of both signs over all scores: neither their sums over batches nor the result are rounded."""

    def capped(q, k, v, slopes):
        distance = torch.arange(k.size(-2))[None, :] - torch.arange(q.size(-2))[:, None]
        scores = 30 * torch.tanh(q @ k.mT * q.size(-1) ** -0.5 / 30) + slopes[:, None, None] * distance
        keep = (distance <= 0) & (distance > -80)
        return torch.softmax(scores.masked_fill(~keep, float("-inf")), -1) @ v

    def drawn() -> list[torch.Tensor]:
        q, k, v = (torch.randn(2, 2, 97, 32) for _ in range(3))
        return [t.bfloat16().requires_grad_() for t in (q, k, v + 2, 4.0 ** -torch.arange(1.0, 3.0))]

    file = generated(captured(capped, drawn()))
    assert "running_max" in file.text and "aten.bmm" not in file.text
    kernels = loaded(file).f
    own_error, eager_error = 0.0, 0.0
    for seed in range(4):
        torch.manual_seed(seed)
        inputs = drawn()
        right = _last_gradient(capped, [exact(i) for i in inputs])
        own_error += error(_last_gradient(kernels, inputs), right)
        eager_error += error(_last_gradient(capped, inputs), right)
    assert own_error < eager_error


def _last_gradient(function: Callable[..., torch.Tensor], inputs: list[torch.Tensor]) -> torch.Tensor:
    gradient = results(function, inputs)[0][-1]
    assert gradient is not None
    return gradient


def test_a_bias_for_each_key_is_made_as_a_whole() -> None:
    inputs = [*(tensor(2, 2, 64, 32) for _ in range(3)), tensor(2, 1, 64)]
    assert wrong(biased, inputs) == []


def test_heads_of_one_product() -> None:
    inputs = [tensor(2, 64, 64), tensor(64, 192)]
    text = checked(split_heads, inputs).text
    assert "running_max" in text


def test_two_layers() -> None:
    def twice(q, k, v):
        return causal(causal(q, k, v), k, v)

    inputs = [tensor(2, 2, 64, 32) for _ in range(3)]
    text = checked(twice, inputs).text
    assert text.count("running_max = tl.full") == 1
    assert len(re.findall(r"launch\(\s*f_forward_kernel\w*,", text)) == 2


def test_a_softmax_over_products_that_is_no_attention() -> None:
    def classified(x, w):
        return F.softmax(x @ w, -1)

    assert not fused(classified, tensor(64, 32), tensor(32, 64))


def anti_causal(q, k, v):
    rows, cols = torch.arange(q.size(-2))[:, None], torch.arange(k.size(-2))[None, :]
    return torch.softmax(torch.where(cols < rows, float("-inf"), q @ k.transpose(-2, -1)), -1) @ v


def both_sides(q, k, v):
    far = (torch.arange(q.size(-2))[:, None] - torch.arange(k.size(-2))[None, :]).abs() > 20
    return torch.softmax((q @ k.transpose(-2, -1)).masked_fill(far, float("-inf")), -1) @ v


@pytest.mark.parametrize(
    "function, first", [(windowed, True), (anti_causal, True), (both_sides, False), (causal, False)]
)
def test_tiles_before_a_window_are_not_seen(function: Callable[..., torch.Tensor], first: bool) -> None:
    inputs = [tensor(1, 1, 200, 16) for _ in range(3)]
    text = checked(function, inputs).text
    assert bool(re.search(r"for start in range\(\s*\(tl.maximum\(tl.program_id\(0\) \* ROWS - 15, 0\)", text)) == (
        function is windowed
    )
    assert bool(re.search(r"in range\(\s*\((tl.maximum\()?tl.program_id\(0\) \* ROWS", text)) == first


def hidden_rows(*shape: int) -> torch.Tensor:
    """A mask of which some rows hide everything."""
    return (torch.rand(shape) < 0.5) & (torch.arange(shape[-2]) % 5 > 0)[:, None]


SDPA = F.scaled_dot_product_attention


LIBRARY: dict[str, tuple[Callable[..., torch.Tensor], int, tuple[torch.Tensor, ...]]] = {
    "plain": (lambda q, k, v: SDPA(q, k, v), 4, ()),
    "causal": (lambda q, k, v: SDPA(q, k, v, is_causal=True, scale=0.3), 4, ()),
    "grouped": (lambda q, k, v: SDPA(q, k, v, is_causal=True, enable_gqa=True), 2, ()),
    "mask": (lambda q, k, v, mask: SDPA(q, k, v, mask), 4, (hidden_rows(40, 48),)),
    "mask for a batch": (lambda q, k, v, mask: SDPA(q, k, v, attn_mask=mask), 4, (hidden_rows(2, 1, 40, 48),)),
    "bias": (lambda q, k, v, bias: SDPA(q, k, v, bias), 4, (tensor(2, 4, 40, 48),)),
    "bias that hides rows": (
        lambda q, k, v, bias, mask: SDPA(q, k, v, bias.masked_fill(~mask, float("-inf"))),
        4,
        (tensor(40, 48), hidden_rows(40, 48)),
    ),
}
LIBRARY_CASES = [(name, "bf16" if name in ("causal", "bias") else "f32") for name in LIBRARY]


@pytest.mark.parametrize(("name", "dtype"), some(product(LIBRARY, DTYPES), LIBRARY_CASES, several=True), ids=str)
def test_the_attention_of_pytorch(name: str, dtype: str) -> None:
    torch.manual_seed(1)
    function, heads, extra = LIBRARY[name]
    q = tensor(2, 4, 40, 16, dtype=DTYPES[dtype])
    k, v = (tensor(2, heads, 48, 16, dtype=DTYPES[dtype]) for _ in range(2))
    given = [t.to(DTYPES[dtype]).detach().requires_grad_() if t.is_floating_point() else t for t in extra]
    with composites_decomposed():
        assert "aten.bmm" not in checked(function, [q, k, v, *given]).text


def scores_and_masked(q, k, other=float("-inf")):
    scores = q @ k.transpose(-2, -1) * 0.25
    keep = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).tril()
    return scores, scores.masked_fill(~keep, other)


def masked_but_for_some(q, k, v):
    scores, masked = scores_and_masked(q, k)
    return torch.where(torch.arange(k.size(-2)) > 150, scores, masked).softmax(-1) @ v


def capped_once_masked(q, k, v):
    return (5 * torch.tanh(scores_and_masked(q, k)[1] / 5)).softmax(-1) @ v


def at_least_another(q, k, v):
    scores, masked = scores_and_masked(q, k)
    return torch.maximum(masked, scores - 3).softmax(-1) @ v


def masked_with_zeros(q, k, v):
    return scores_and_masked(q, k, 0.0)[1].softmax(-1) @ v


def masked_in_a_term(q, k, v):
    scores, masked = scores_and_masked(q, k)
    return (scores + torch.sigmoid(masked)).softmax(-1) @ v


@pytest.mark.parametrize(
    "function", [masked_but_for_some, capped_once_masked, at_least_another, masked_with_zeros, masked_in_a_term]
)
def test_tiles_are_left_out_where_all_their_scores_are_minus_infinity(function: Callable[..., torch.Tensor]) -> None:
    """And not where a mask is of a part of what the scores are made of, or leaves a number."""
    inputs = [tensor(1, 200, 16) for _ in range(3)]
    file = checked(function, inputs)
    assert len(re.findall(r"tl\.dot\(", file.text)) >= 6
    assert "tl.minimum(200," not in kernels_in(file)[0]


def masked_by_a_term(q, k, v):
    mask = torch.full((q.size(-2), k.size(-2)), float("-inf")).triu(1)
    return (q @ k.transpose(-2, -1) * 0.25 + mask).softmax(-1) @ v


def test_a_term_of_zeros_and_infinities_is_a_causal_mask() -> None:
    """No tile of it is made of a number that the ones before leave alone: Triton has variables of one shape."""
    file = checked(masked_by_a_term, [tensor(1, 200, 16) for _ in range(3)])
    assert "tl.minimum(200," in file.text
    assert not re.search(r"^ +\w+ = 0\.0$", file.text, re.M)


def test_attention_in_double_precision_is_left_to_the_library() -> None:
    """What the kernels add up is in float32."""
    assert "tl.dot" not in checked(plain, [tensor(1, 64, 16, dtype=torch.float64) for _ in range(3)]).text


def test_nodes_say_what_their_kernels_compute():
    def biased(q, k, v, bias, w):
        return torch.relu((torch.softmax(q @ k.mT + bias, -1) @ v).flatten(0, 1) @ w)

    inputs = [tensor(2, 48, 32), tensor(2, 48, 32), tensor(2, 48, 32), tensor(48, 48), tensor(32, 64)]
    graphs = captured(biased, inputs)
    generated(graphs)
    templates = [
        [t for n in graph.nodes if (t := facts_of(n).template) is not None]
        for graph in (graphs.forward, graphs.backward)
        if graph is not None
    ]
    assert [[type(t) for t in of_graph] for of_graph in templates] == [
        [AttentionForward, MatmulTemplate],
        [AttentionScoreSum, AttentionGradients, AttentionGradients],
    ]
    gradients = [{p.over for p in t.products} for t in templates[1] if isinstance(t, AttentionGradients)]
    assert gradients == [{"n"}, {"m"}]
