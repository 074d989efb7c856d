"""What is found in a generated file."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from generated import HONEST, generated

from fx_lsp.bench.variant.calls import Calls, FillValues, bytes_of, set_count
from fx_lsp.bench.variant.ceilings import costs
from fx_lsp.bench.variant.devices import Device, device
from fx_lsp.bench.variant.subject import NotComparable, is_interpreted, opened
from fx_lsp.measured import What

GOLDEN = Path(__file__).parents[1] / "golden" / "kernels"
CPU = device("cpu")


def test_a_module_and_its_kernels():
    found = opened(GOLDEN / "RMSNorm.py", "cpu", kernels=True)
    (module, x), kwargs = found.make(3)
    assert type(module).__name__ == "RMSNorm" and x.shape == (4, 12, 8) and kwargs == {}
    assert torch.equal(found.reference(module, x), module(x))
    assert [function.__name__ for function in found.originals] == ["forward"]
    assert is_interpreted(found.module) and not hasattr(found.module, "original")


def test_without_kernels_triton_is_not_needed(tmp_path: Path):
    file = tmp_path / "kernels.py"
    text = (GOLDEN / "rms_norm.py").read_text().replace("import triton", "import no_such_triton")
    configs = (
        "def config(**options):\n    return triton.Config({}, **options)\n\n\nCONFIGS = [config(num_warps=4)]\n\n\n"
    )
    file.write_text(text.replace("@triton.jit", f"{configs}@triton.jit", 1))
    found = opened(file, "cpu", kernels=False)
    (x, weight), _ = found.make(3)
    assert found.kernels is None and found.reference(x, weight).shape == x.shape


def test_an_original_that_finds_a_tensor_by_itself(tmp_path: Path):
    wrapped = "return functools.wraps(f)(lambda *args, weight, **kwargs: f(*args, **kwargs))"
    file = tmp_path / "kernels.py"
    text = generated("return torch.sigmoid(x) * 1", "import functools", original="y = torch.sigmoid(x)")
    text = text.replace("    def f(x, weight):", "    def f(x):").replace("    return f\n", f"    {wrapped}\n")
    file.write_text(text.replace("return (x, weight), {}", 'return (x,), {"weight": weight}'))
    found = opened(file, "cpu", kernels=True)
    assert [*found.outside] == ["weight"] and found.outside["weight"].__name__ == "f"


def test_an_original_that_fails(tmp_path: Path):
    file = tmp_path / "kernels.py"
    file.write_text(generated(HONEST).replace("    return f\n", "    return [].pop\n"))
    with pytest.raises(NotComparable, match="the original fails with random arguments: TypeError"):
        opened(file, "cpu", kernels=False)


def test_sizes_that_may_be_any(tmp_path: Path):
    file = tmp_path / "kernels.py"
    file.write_text(generated(HONEST, shape="(rows, 8)").replace("(seed, device)", "(seed, device, rows=4)"))
    found = opened(file, "cpu", kernels=True)
    assert found.sizes == {"rows": 4}
    assert found.make(0)[0][0].shape == (4, 8) and found.with_sizes(rows=5)(0)[0][0].shape == (5, 8)


def calls(tmp_path: Path, sets: int = 2) -> Calls:
    file = tmp_path / "kernels.py"
    file.write_text(generated(HONEST))
    subject = opened(file, "cpu", kernels=True)
    return Calls(subject, subject.reference, sets, True, random.Random(0))


def test_a_set_keeps_its_addresses_and_has_other_values_for_each_call(tmp_path: Path):
    found = calls(tmp_path)
    x = found.sets[0].tensors[0]
    address, before = x.data_ptr(), x.detach().clone()
    found.fill(0, FillValues(1, 1.5))
    assert x.data_ptr() == address and not torch.equal(x, before)
    assert torch.equal(x, found.sources[1][0] * 1.5)
    old = [s.clone() for s in found.sources[1]]
    found.renew()
    assert not torch.equal(found.sources[1][0], old[0])


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("forward", ["out"]),
        ("backward", ["gradient of x", "gradient of weight"]),
        ("both", ["out", "gradient of x", "gradient of weight"]),
    ],
)
def test_results_are_those_of_the_original(tmp_path: Path, what: What, names: list[str]):
    found = calls(tmp_path)
    results = found.call(1, what, found.prepare(1, what))
    right, exact = found.reference(1, what)
    assert found.names(what, len(results)) == names
    assert all(torch.equal(a, b) for a, b in zip(results, right, strict=True) if a is not None and b is not None)
    assert {t.dtype for t in exact if t is not None} == {torch.float64}


def test_sets_exceed_the_cache_and_fit_in_memory(tmp_path: Path):
    subject = calls(tmp_path).subject  # 160 bytes of inputs
    gpu = Device("cuda", ("events",), lambda: None, cache=400)
    assert set_count(subject, gpu, 1 << 30) == 1 + 3 * 400 // 160
    assert set_count(subject, gpu, 160 * 3 * 5) == 3  # two more hold the values
    assert set_count(subject, gpu, 1) == 1
    assert set_count(subject, Device("cuda", (), lambda: None, 1 << 30), 1 << 30) == 16


def test_bytes_count_what_is_shared_and_repeated_once():
    x = torch.zeros(4, 8)
    assert bytes_of([x, x.detach(), x[:1].expand(4, 8)]) == 128 + 32


def test_operations_of_products_are_counted(tmp_path: Path):
    file = tmp_path / "kernels.py"
    text = "x @ weight.outer(weight)"  # (4, 8) by (8, 8)
    file.write_text(generated(f"return {text}", original=f"y = {text}"))
    found = costs(opened(file, "cpu", kernels=False), "", ("forward", "backward", "both"))
    once = 2 * 4 * 8 * 8
    assert [(c.what, c.flops) for c in found] == [("forward", once), ("backward", 2 * once), ("both", 3 * once)]
