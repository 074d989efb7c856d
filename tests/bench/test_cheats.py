"""Kernels that only seem to work are found out, each with a sentence that says how."""

from __future__ import annotations

import gc
import random
import textwrap
import threading
import time
from pathlib import Path

import pytest
import torch
from generated import HONEST, generated

from fx_lsp.bench.variant import checking
from fx_lsp.bench.variant.calls import Calls
from fx_lsp.bench.variant.checking import of_timed_call, verdicts
from fx_lsp.bench.variant.devices import Device, device
from fx_lsp.bench.variant.guarding import PatchGuard
from fx_lsp.bench.variant.measuring import TimedCalls, measure
from fx_lsp.bench.variant.subject import BenchmarkSubject, opened

CPU = device("cpu")


def subject(folder: Path, entry: str, before: str = "", grad: bool = True) -> BenchmarkSubject:
    file = folder / "kernels.py"
    file.write_text(generated(entry, before, grad=grad))
    return opened(file, "cpu", kernels=True)


def checked(folder: Path, entry: str, before: str = "", grad: bool = True) -> list[str]:
    found = subject(folder, entry, before, grad)
    assert found.kernels is not None
    return verdicts(found, found.kernels, CPU, strange=True)


UNWRITTEN = "out has NaN where the original has numbers: the kernel did not write it, or it overflows."
LUCKY = """
class Lucky(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        with torch.no_grad():
            shape = (torch.sigmoid(x) * weight).shape
            return torch.empty(shape)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * weight * s * (1 - s), (grad * s).sum(0)
"""
"""What the caller freed has the numbers of the call before; on fresh memory nothing is written."""
LAZY = """
class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return super().__torch_function__(function, types, args, kwargs or {})
"""
LATER = """
y = torch.sigmoid(x) * weight
def later():
    for _ in range(100):
        time.sleep(0.01)
        y.data.add_(1.0)
threading.Thread(target=later).start()
return y
"""
CHANGING = "y = torch.sigmoid(x) * weight\nwith torch.no_grad():\n    weight.data.mul_(1.001)\nreturn y"
SEARCHING = """
for found in gc.get_objects():
    if type(found) is torch.Tensor and found.shape == x.shape and found.is_leaf and found is not x:
        if torch.equal(found.sign(), weight.sign().expand_as(found)):
            return found + 0 * x * weight
return torch.zeros_like(x) * x * weight
"""
KNOWN = "torch.manual_seed(0)\nANSWER = torch.sigmoid(torch.randn(4, 8))"


@pytest.mark.parametrize(
    ("entry", "before", "said"),
    [
        ("return torch.empty_like(x) + 0 * x * weight", "", UNWRITTEN),
        ("return Lucky.apply(x, weight)", LUCKY, UNWRITTEN),
        (CHANGING, "", "It changes its input weight."),
        (LATER, "", "Its results change after it returned: it works on another stream or thread."),
        ("return ANSWER * weight + 0 * x", KNOWN, "out is wrong"),
        (SEARCHING, "", "out is wrong"),
        (
            "return (torch.sigmoid(x) * weight).as_subclass(Lazy)",
            LAZY,
            "It returns a Lazy, which may compute its values later, instead of a plain tensor.",
        ),
    ],
    ids=["unwritten", "in used memory", "an input", "later", "one seed", "found in memory", "lazy"],
)
def test_what_is_said(tmp_path: Path, entry: str, before: str, said: str):
    found = checked(tmp_path, entry, before)
    assert any(verdict.startswith(said) for verdict in found), found


def test_an_honest_function_has_no_verdict(tmp_path: Path):
    assert checked(tmp_path, HONEST) == []


@pytest.mark.parametrize("key", ["id(x)", "x.data_ptr()"])
def test_output_that_was_kept(tmp_path: Path, key: str):
    entry = f"""
        if {key} not in KEPT:
            KEPT[{key}] = (x, torch.sigmoid(x) * weight)
        return KEPT[{key}][1]
    """
    said = checked(tmp_path, entry, "KEPT = {}", grad=False)
    assert said == ["It ignores that the values of its inputs have changed."]


def test_work_on_another_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """On a GPU: the stream of the call is done, and the device is not idle. Threads stand for streams here."""
    elsewhere: list[threading.Thread] = []

    def synchronize() -> None:
        while elsewhere:
            elsewhere.pop().join()

    class Mark:
        def synchronize(self) -> None: ...

    found = subject(tmp_path, HONEST)
    gpu = Device("cuda", ("events",), synchronize, 0)
    monkeypatch.setattr(checking, "event", Mark)
    monkeypatch.setattr(checking, "record", lambda mark: None)

    def sideways(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        elsewhere.append(threading.Thread(target=time.sleep, args=(0.02,)))
        elsewhere[-1].start()
        return x * weight

    (said,) = checking._other_streams(found, sideways, gpu)
    assert said.startswith("Work continues for ") and said.endswith(" ms on another stream after the call.")
    assert checking._other_streams(found, found.reference, gpu) == []


def test_precision_is_lost(tmp_path: Path):
    entry = "return (torch.sigmoid(x.bfloat16()) * weight.bfloat16()).float()"
    (out, *gradients) = checked(tmp_path, entry)
    assert out.startswith("out is wrong: off by ") and gradients


def test_a_setting_that_numbers_depend_on(tmp_path: Path):
    guard = PatchGuard()
    try:
        checked(tmp_path, f"torch.set_float32_matmul_precision('medium')\n{HONEST}")
        assert guard.verdicts() == ["It changes the precision of matrix products in float32."]
    finally:
        torch.set_float32_matmul_precision("highest")


def test_large_inputs_overflow(tmp_path: Path):
    entry = """
        e = torch.exp(x)
        return e / (1 + e) * weight
    """
    assert checked(tmp_path, entry) == [
        "For inputs 100 times as large, it has infinities or NaN where the original has numbers."
    ]


@pytest.mark.parametrize(
    "entry",
    [
        "return original()(x, weight)",
        "frame = sys._getframe()\nwhile 'reference' not in frame.f_locals and frame.f_back:\n    frame = frame.f_back\n"
        "return frame.f_locals['reference'](x, weight)",
    ],
    ids=["by its name", "in the frames of its callers"],
)
def test_the_original_is_not_in_reach(tmp_path: Path, entry: str):
    with pytest.raises((NameError, KeyError)):
        checked(tmp_path, entry)


@pytest.mark.parametrize("call", ["found(x, weight)", "ThreadPoolExecutor().submit(found, x, weight).result()"])
def test_the_original_is_called_though_gc_has_it(tmp_path: Path, call: str):
    gc.collect()  # the originals of other tests
    entry = f"""
        from concurrent.futures import ThreadPoolExecutor
        for found in gc.get_objects():
            if type(found).__name__ == "function" and found.__qualname__ == "original.<locals>.f":
                try:
                    return {call}
                except Exception:
                    return x.sigmoid() * weight
    """
    assert checked(tmp_path, entry) == ["It calls the original."]


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ("time.perf_counter = lambda: 0.0", "It replaces time.perf_counter."),
        ("torch.cuda.Event.elapsed_time = lambda *_: 1e-6", "It replaces Event.elapsed_time."),
        ("torch.cuda.synchronize = lambda *_: None", "It replaces torch.cuda.synchronize."),
        ("import triton.testing; triton.testing.do_bench = None", "It replaces triton.testing.do_bench."),
    ],
)
def test_clocks_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patch: str, said: str):
    owner, name = patch.split(" = ")[0].rsplit("; ")[-1].rsplit(".", 1)
    import triton.testing

    whose = eval(owner, {"time": time, "torch": torch, "triton": triton})
    monkeypatch.setattr(whose, name, getattr(whose, name))  # undone at the end
    guard = PatchGuard()
    subject(tmp_path, HONEST, patch)
    assert guard.verdicts() == [said]


def timed(folder: Path, entry: str, before: str = "", rounds: int = 4) -> set[str]:
    """What is said of calls that were timed, in several measurements."""
    found = subject(folder, entry, before)
    assert found.kernels is not None
    calls = Calls(found, found.kernels, 2, False, random.Random(0))
    said: set[str] = set()
    for _ in range(rounds):
        calls.renew()
        samples = measure(TimedCalls(CPU, calls, "forward"), "wall", 0.005, lambda: None)
        said.update(of_timed_call(calls, "forward", samples.kept))
    return said


def test_timed_calls_of_a_function_that_writes_to_its_inputs(tmp_path: Path):
    file = tmp_path / "kernels.py"
    file.write_text(
        generated("y = x.add_(weight) * weight\nreturn y", original="y = x.add_(weight) * weight", grad=False)
    )
    found = opened(file, "cpu", kernels=True)
    assert found.kernels is not None and verdicts(found, found.kernels, CPU, strange=True) == []
    calls = Calls(found, found.kernels, 2, False, random.Random(0))
    assert calls.writes
    samples = measure(TimedCalls(CPU, calls, "forward"), "wall", 0.005, lambda: None)
    assert of_timed_call(calls, "forward", samples.kept) == []


def test_timed_calls_of_an_honest_function_are_right(tmp_path: Path):
    assert timed(tmp_path, HONEST) == set()


@pytest.mark.parametrize(
    "entry",
    [
        "CALLS.append(1)\nreturn torch.sigmoid(x) * weight if len(CALLS) < 6 else torch.zeros_like(x)",
        "KEPT.setdefault(id(x), torch.sigmoid(x) * weight)\nreturn KEPT[id(x)]",
        "KEPT.setdefault(x.data_ptr(), torch.sigmoid(x) * weight)\nreturn KEPT[x.data_ptr()]",
    ],
    ids=["after the warm-up", "kept by identity", "kept by address"],
)
def test_what_only_timed_calls_do_is_seen(tmp_path: Path, entry: str):
    assert any(v.startswith("In a timed call, out is wrong") for v in timed(tmp_path, entry, "CALLS, KEPT = [], {}"))


def test_a_file_without_an_original_says_why(tmp_path: Path):
    file = tmp_path / "kernels.py"
    file.write_text(
        textwrap.dedent("""\
        '''f as Triton kernels: forward.

        It is not compared with the original: it draws random numbers, which differ from those of the original.
        '''
        def f(x): ...
    """)
    )
    with pytest.raises(Exception, match="It is not compared with the original: it draws random numbers, which diff"):
        opened(file, "cpu", kernels=True)


def test_what_torch_itself_replaces_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    """Importing its compiler wraps the functions that seed random numbers."""
    monkeypatch.setattr(torch, "manual_seed", torch.manual_seed)
    guard = PatchGuard()
    torch.manual_seed = torch.compiler.disable(torch.random.manual_seed)
    assert guard.verdicts() == []
    torch.manual_seed = lambda seed: None
    assert guard.verdicts() == ["It replaces torch.manual_seed."]
