"""Writes to a part of a tensor: `cache[:, :, pos] = k`. They happen in its memory, and the rest is not copied."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("triton")

import torch
from inline_snapshot import snapshot
from interpreted import captured, checked, error, generated, kernels_in, loaded, wrong
from parameters import some

from fx_lsp.codegen.file.module import GeneratedFile

B, H, S, D = 2, 3, 17, 9
"""Sizes of a cache; S and D are odd."""
MARGIN = 64
"""The number of elements of foreign memory before and after each input."""


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def at(*places: int) -> torch.Tensor:
    return torch.tensor(places)


def cache() -> torch.Tensor:
    return randn(B, H, S, D)


def attention(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.transpose(-1, -2)).softmax(-1) @ v


Case = tuple[str, str, Callable[[], list[torch.Tensor]]]
"""The parameters of a function, its body, and what makes its inputs."""
OFTEN: dict[str, Case] = {
    "an_integer": ("c k", "c[:, :, 5] = k", lambda: [cache(), randn(B, H, D)]),
    "from_the_end": ("c k", "c[:, :, -2] = k", lambda: [cache(), randn(B, H, D)]),
    "a_slice": ("c k", "c[:, :, 3:5] = k", lambda: [cache(), randn(B, H, 2, D)]),
    "every_other": ("c k", "c[:, :, 1::2] = k", lambda: [cache(), randn(B, H, S // 2, D)]),
    "a_tensor": ("c k p", "c[:, :, p] = k", lambda: [cache(), randn(B, H, 2, D), at(-1, 0)]),
    "index_copy": ("c k p", "c.index_copy_(2, p, k)", lambda: [cache(), randn(B, H, 2, D), at(7, 0)]),
    "index_fill": ("c p", "c.index_fill_(2, p, 1.5)", lambda: [cache(), at(7, 0)]),
    "scatter": (
        "c i k",
        "c.scatter_(1, i, k)",
        lambda: [cache(), torch.rand(B, H, S, D).argsort(1)[:, :2, 3:], randn(B, 2, S, D)],
    ),
    "put": ("c i x", "c.put_(i, x)", lambda: [cache(), at(5, -1, 300), randn(3)]),
    "several_tensors": ("c i j x", "c[i, :, j] = x", lambda: [cache(), at(0, 1), at(3, -1), randn(2, H, D)]),
    "of_a_view": ("c k p", "c.view(-1, D)[p] = k", lambda: [cache(), randn(3, D), at(0, 50, B * H * S - 1)]),
    "transposed": ("c k p", "c.transpose(1, 2)[:, p] = k", lambda: [cache(), randn(B, 2, H, D), at(-1, 0)]),
    "diagonal": ("c x", "c.diagonal(0, 2, 3).copy_(x)", lambda: [cache(), randn(B, H, D)]),
    "added": ("c k", "c[:, :, 5] += k", lambda: [cache(), randn(B, H, D)]),
    "added_at": ("c k p", "c[:, :, p] += k", lambda: [cache(), randn(B, H, 2, D), at(-1, 0)]),
    "less_the_mean": ("c", "c[:, :, 3] -= c.mean((0, 1, 2))", lambda: [cache()]),
    "shifted": ("c k", "c[:, :, :-1] = c[:, :, 1:].clone(); c[:, :, -1] = k", lambda: [cache(), randn(B, H, D)]),
    "chain": (
        "c k p",
        "c[:, :, 5] = k[:, :, 0]; c[:, :, p] = k; c[0, 1, 2:4] = 0.0",
        lambda: [cache(), randn(B, H, 2, D), at(-1, 5)],
    ),
    # two parts without common elements, and two writes into one of them
    "of_parts": (
        "c k p",
        "c[0][:, p] = k; c[0][:, 2] = 1.0; c[1, :, 3:5] = k; return c[0].sum()",
        lambda: [cache(), randn(H, 2, D), at(-1, 0)],
    ),
    "value_used_again": (
        "c k p",
        "new = c[:, :, p] + k; c[:, :, p] = new; return new * 2",
        lambda: [cache(), randn(B, H, 2, D), at(-1, 0)],
    ),
    "read_between": (
        "c k p",
        "c[:, :, p] = k; total = c.sum(); c[:, :, 4] = total; return c * 2",
        lambda: [cache(), randn(B, H, 2, D), at(-1, 0)],
    ),
    "old_part": (
        "c k p",
        "old = c[:, :, p].clone(); c[:, :, p] = k; return old",
        lambda: [cache(), randn(B, H, 2, D), at(-1, 0)],
    ),
    "old_sum": (
        "c k p",
        "old = c.sum(-1); c[:, :, p] = k; return old, c.sum(-1)",
        lambda: [cache(), randn(B, H, 2, D), at(-1, 0)],
    ),
    "decode": (
        "c d k v q p",
        "c[:, :, p] = k; d[:, :, p] = v; return attention(q, c[:, :, :9], d[:, :, :9])",
        lambda: [cache(), cache(), *(randn(B, H, 1, D) for _ in range(3)), at(3)],
    ),
    "decode_at_integer": (
        "c d k v q",
        "c[:, :, 5:6] = k; d[:, :, 5:6] = v; return attention(q, c[:, :, :6], d[:, :, :6])",
        lambda: [cache(), cache(), *(randn(B, H, 1, D) for _ in range(3))],
    ),
    "layers": (
        "c k v x p",
        """
for layer in range(2):
    keys, values = c[layer, 0], c[layer, 1]
    keys[:, :, p] = k + x
    values[:, :, p] = v * x
    x = x + attention(x, keys[:, :, :9], values[:, :, :9])
return x
""",
        lambda: [randn(2, 2, B, H, S, D), *(randn(B, H, 1, D) for _ in range(3)), at(3)],
    ),
}
"""Functions whose writes all happen in place."""
OTHERS: dict[str, Case] = {
    "old_value_later": (
        "c k p",
        "old = c * 2; c[:, :, p] = k; return old.sum(0) + c.sum(0)",
        lambda: [cache(), randn(B, H, 2, D), at(-1, 0)],
    ),
    "a_mask": ("c m", "c[m] = 0.0", lambda: [cache(), randn(B, H, S, D) > 0]),
    "rows_by_mask": ("c m", "c[:, m] = 1.0", lambda: [cache(), at(1, 0, 1) > 0]),
    "summed": (
        "c k p",
        "c.index_put_((p,), k, accumulate=True)",
        lambda: [cache(), randn(4, H, S, D), at(1, -1, 0, 1)],
    ),
    "of_a_copy": (
        "c k p",
        "y = c.index_copy(2, p, k); c[:, :, p] = k * 2; return y",
        lambda: [cache(), randn(B, H, 2, D), at(7, 0)],
    ),
}
"""Functions that need a whole new value, or update all elements."""


def function_of(case: Case) -> Callable[..., Any]:
    names: dict[str, Any] = {"attention": attention, "D": D}
    exec(f"def f({', '.join(case[0].split())}):\n{textwrap.indent(case[1], '    ')}", names)
    return names["f"]


def inside(value: torch.Tensor) -> torch.Tensor:
    """A tensor with the same elements, between others in memory that must not change."""
    memory = torch.full((value.numel() + 2 * MARGIN,), 77).to(value.dtype)
    part = memory[MARGIN:-MARGIN].view(value.shape)
    return part.copy_(value)


def margins(value: torch.Tensor) -> torch.Tensor:
    memory = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage())
    return torch.cat([memory[:MARGIN], memory[-MARGIN:]])


@torch.no_grad()
def file_of(case: Case, dtype: torch.dtype = torch.float32) -> GeneratedFile:
    inputs = [x.clone().to(dtype) if x.is_floating_point() else x.clone() for x in case[2]()]
    return generated(captured(function_of(case), inputs))


@torch.no_grad()
def differences(
    case: Case, file: GeneratedFile, dtype: torch.dtype = torch.float32, tolerance: float = 1e-5
) -> list[str]:
    """What differs from the function itself: results, inputs afterwards, and memory around the inputs."""
    torch.manual_seed(0)
    inputs = [x.to(dtype) if x.is_floating_point() else x for x in case[2]()]
    ours, theirs = list(map(inside, inputs)), [x.clone() for x in inputs]
    results, expected = loaded(file).f(*ours), function_of(case)(*theirs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    pairs = [*zip(results, expected, strict=True), *zip(ours, theirs, strict=True)]
    wrong = [n for n, (a, b) in enumerate(pairs) if b is not None and not error(a, b) <= tolerance]
    return [f"value {n}" for n in wrong] + [f"around {n}" for n, x in enumerate(ours) if (margins(x) != 77).any()]


@pytest.mark.parametrize("name", [n for n in OTHERS if "mask" not in n])
def test_values_are_right(name: str) -> None:
    assert differences(OTHERS[name], file_of(OTHERS[name])) == []


@pytest.mark.parametrize("name", ["a_mask", "rows_by_mask"])
def test_masks(name: str) -> None:
    file = file_of(OTHERS[name])
    assert "aten" not in file.text and ".copy_(" not in file.text
    inputs = OTHERS[name][2]()
    expected = inputs[0].clone()
    function_of(OTHERS[name])(expected, inputs[1])
    loaded(file).f(*inputs)
    assert torch.equal(inputs[0], expected)


@pytest.mark.parametrize("name", OFTEN)
def test_values_are_right_and_nothing_of_the_size_of_the_cache_is_made(name: str) -> None:
    file = file_of(OFTEN[name])
    assert differences(OFTEN[name], file) == []
    text = file.text.partition("\n\n\ndef is_plain(")[0]
    whole = ", ".join(map(str, OFTEN[name][2]()[0].shape))
    assert "index_put.default" not in text and "scatter" not in re.sub(r"\w*kernel\w*|select_scatter\w*", "", text)
    made = re.findall(rf"(\w+) = torch\.(?:empty|zeros)\(\s*{whole},", file.text)
    assert made == {"read_between": ["mul"]}.get(name, [])
    assert ".copy_(" not in file.text


@pytest.mark.parametrize("dtype", some((torch.float16, torch.bfloat16), (torch.bfloat16,)), ids=str)
@pytest.mark.parametrize("name", ["an_integer", "a_tensor", "chain", "decode"])
def test_half_precision(name: str, dtype: torch.dtype) -> None:
    assert differences(OFTEN[name], file_of(OFTEN[name], dtype), dtype, 2e-2) == []


def test_the_kernel_of_a_cache() -> None:
    def make() -> list[torch.Tensor]:
        return [*(torch.empty(8, 8, 4096, 64) for _ in range(2)), *(torch.empty(8, 8, 1, 64) for _ in range(2)), at(5)]

    (kernel,) = kernels_in(file_of(("c d k v p", "c[:, :, p], d[:, :, p] = k, v", make)))
    assert kernel == snapshot("""\
def f_kernel(arg4_1_ptr, arg2_1_ptr, arg3_1_ptr, arg0_1_ptr, arg1_1_ptr,
             N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    cols = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    arg4_1 = tl.load(arg4_1_ptr)
    index_put = tl.where(arg4_1 < 0, arg4_1 + 4096, arg4_1)
    arg2_1 = tl.load(arg2_1_ptr + rows * N + cols)
    arg3_1 = tl.load(arg3_1_ptr + rows * N + cols)
    tl.store(arg0_1_ptr + rows * 262144 + cols + index_put * N, arg2_1)
    tl.store(arg1_1_ptr + rows * 262144 + cols + index_put * N, arg3_1)\
""")


def test_one_of_the_values_for_an_index_stays() -> None:
    """The sums are computed from the old values, although other programs write at the same place."""
    inputs = [torch.zeros(5, 300), torch.ones(64, 300), torch.full((64,), 2)]
    case = ("c k p", "c[p] += k", lambda: inputs)
    assert differences(case, file_of((*case[:2], lambda: [x.clone() for x in inputs]))) == []


def fresh(x: Any, i: Any, v: Any) -> Any:
    out = x.new_zeros(S, D)
    out[i] = v
    return out


def computed(x: Any, i: Any, v: Any) -> Any:
    out = x * 2
    total = out.sum()
    out[i] = v
    return out + total


def old_and_new(x: Any, i: Any, v: Any) -> Any:
    out = x * 2
    other = out + 1
    out[i] = v
    return out, other


def both(x: Any, i: Any, v: Any) -> Any:
    """Two new values of one tensor: only one can have its memory."""
    out = x * 2
    return out.index_put((i,), v), out.index_put((i,), v * 2)


def part_of_new(x: Any, i: Any, v: Any) -> Any:
    out = x.new_zeros(3, S, D)
    out[1][i] = v
    return out, out[1] * 2


@pytest.mark.parametrize("function", [fresh, computed, old_and_new, both, part_of_new])
def test_tensors_that_the_function_creates(function: Callable[..., Any]) -> None:
    inputs = [randn(S, D), at(-1, 0), randn(2, D)]
    with torch.no_grad():
        calls = checked(function, inputs).text.count("index_put.default")
    assert calls == (1 if function is both else 0)


@pytest.mark.parametrize("function", [fresh, computed, old_and_new, both, part_of_new])
def test_gradients(function: Callable[..., Any]) -> None:
    assert wrong(function, [randn(S, D).requires_grad_(), at(-1, 0), randn(2, D).requires_grad_()]) == []
