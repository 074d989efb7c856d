"""Views without a GPU: the texts of a kernel from TTIR to SASS, the lines they are from, and what the kernel uses."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import textwrap
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from fx_lsp import wire
from fx_lsp.codegen.inspect import assembly
from fx_lsp.codegen.inspect.assembly import Access, Assembly, assemble
from fx_lsp.codegen.inspect.compilation import CompiledKernel, LaunchSpec, compile_kernel
from fx_lsp.codegen.inspect.remarks import remarks
from fx_lsp.model import Failure

triton = pytest.importorskip("triton")

KERNELS = """\
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    total = tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask)
    tl.store(out + at, total, mask=mask)


@triton.jit
def exponentials(value):
    return tl.exp(value - tl.max(value, axis=0))


@triton.autotune([triton.Config({"BLOCK": 4096})], key=["cols"])
@triton.jit
def softmax(x, out, stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * stride + at, mask=at < cols, other=float("-inf")).to(tl.float32)
    e = exponentials(value)
    tl.store(out + row * stride + at, e / tl.sum(e, axis=0), mask=at < cols)


@triton.jit
def matmul(a, b, c, N, K, M: tl.constexpr, BLOCK: tl.constexpr, DEPTH: tl.constexpr):
    m = tl.program_id(0) * M + tl.arange(0, M)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, DEPTH)
    acc = tl.zeros((M, BLOCK), dtype=tl.float32)
    for start in range(0, K, DEPTH):
        left = tl.load(a + m[:, None] * K + (start + k)[None, :])
        right = tl.load(b + (start + k)[:, None] * N + n[None, :])
        acc = tl.dot(left, right, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc.to(c.dtype.element_ty))


@triton.jit
def every_other(x, out):
    at = tl.arange(0, 1024)
    tl.store(out + at, tl.load(x + 2 * at))


@triton.jit
def precise(a, b, c):
    r = tl.arange(0, 16)
    at = r[:, None] * 16 + r[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at), input_precision="ieee"))
"""


def launch_add(aligned: str = "x y out n") -> LaunchSpec:
    signature = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    return LaunchSpec("add", signature, {"BLOCK": 1024}, tuple(aligned.split()))


def launch_softmax() -> LaunchSpec:
    signature = {"x": "*bf16", "out": "*bf16", "stride": "i32", "cols": "i32", "BLOCK": "constexpr"}
    return LaunchSpec("softmax", signature, {"BLOCK": 4096}, ("x", "out", "stride", "cols"), num_warps=8)


def launch_matmul(num_stages: int = 2, num_warps: int = 8, rows: int = 128, **options: int) -> LaunchSpec:
    sizes = {"M": rows, "BLOCK": 128, "DEPTH": 64}
    signature = {"a": "*fp16", "b": "*fp16", "c": "*fp16", "N": "i32", "K": "i32", **dict.fromkeys(sizes, "constexpr")}
    return LaunchSpec("matmul", signature, dict(sizes), ("a", "b", "c", "N", "K"), num_warps, num_stages, dict(options))


def launch_precise() -> LaunchSpec:
    return LaunchSpec("precise", {"a": "*fp32", "b": "*fp32", "c": "*fp32"}, {}, ("a", "b", "c"))


_MADE: dict[tuple[str, str], Assembly | Failure] = {}


def assembled(launch: LaunchSpec, target: str = "cuda:90") -> Assembly:
    key = (repr(launch), target)
    if key not in _MADE:
        _MADE[key] = assemble(KERNELS, launch, target)
    made = _MADE[key]
    assert isinstance(made, Assembly), made
    return made


def source_lines(made: Assembly, name: str, instruction: str) -> set[str]:
    """The code that the rows of a text with `instruction` are from."""
    source = ["", *KERNELS.splitlines()]
    rows = zip(made.texts[name].splitlines(), made.lines[name], strict=True)
    return {source[line].strip() for row, line in rows if re.search(instruction, row)}


NVIDIA = ["ttir", "ttgir", "llir", "ptx", "sass"]


@pytest.mark.parametrize(
    ("target", "texts"),
    [("cuda:80", NVIDIA), ("cuda:90", NVIDIA), ("cuda:100", NVIDIA), ("hip:gfx942", [*NVIDIA[:3], "amdgcn", "sass"])],
)
def test_each_target_has_its_texts(target: str, texts: list[str]) -> None:
    made = assembled(launch_add(), target)
    assert list(made.texts) == texts
    for name, text in made.texts.items():
        assert len(text.splitlines()) == len(made.lines[name]), name


NO_SASS = "// hip:gfx942 has no SASS: its final assembly is amdgcn\n"


def test_amd_has_no_sass_and_says_so() -> None:
    assert assembled(launch_add(), "hip:gfx942").texts["sass"] == NO_SASS


LOADS = {"ttir": "tt.load", "ttgir": "tt.load", "llir": "ld.global", "ptx": "ld.global", "sass": "LDG"}
STORES = {"ttir": "tt.store", "ttgir": "tt.store", "llir": "st.global", "ptx": "st.global", "sass": "STG"}
LOADING, STORING = (
    "total = tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask)",
    "tl.store(out + at, total, mask=mask)",
)


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90", "cuda:100"])
def test_loads_and_stores_are_from_their_lines(target: str) -> None:
    for instructions, line in ((LOADS, LOADING), (STORES, STORING)):
        for name, instruction in instructions.items():
            assert source_lines(assembled(launch_add(), target), name, rf"\b{instruction}") == {line}, name


def test_stores_of_amd_are_from_the_line_that_stores() -> None:
    assert source_lines(assembled(launch_add(), "hip:gfx942"), "amdgcn", "global_store") == {STORING}


EXPONENTIALS = {
    "ttir": r"math\.exp",
    "ttgir": r"math\.exp",
    "llir": "call .*ex2",
    "ptx": r"ex2\.approx",
    "sass": r"MUFU\.EX2",
}
SHUFFLES = {"ttgir": r"tt\.reduce\b", "llir": r"call .*shfl\.", "ptx": r"shfl\.", "sass": r"\bSHFL\."}


def test_a_function_keeps_its_lines_and_one_of_the_library_is_from_the_line_that_calls_it() -> None:
    own = "return tl.exp(value - tl.max(value, axis=0))"
    made = assembled(launch_softmax())
    for name, instruction in EXPONENTIALS.items():
        assert source_lines(made, name, instruction) == {own}, name
    assert source_lines(assembled(launch_softmax(), "hip:gfx942"), "amdgcn", "v_exp_f32") == {own}
    for name, instruction in SHUFFLES.items():
        callers = {own, "tl.store(out + row * stride + at, e / tl.sum(e, axis=0), mask=at < cols)"}
        assert source_lines(made, name, instruction) == callers, name


def test_a_loop_is_from_its_line() -> None:
    assert source_lines(assembled(launch_matmul()), "ttir", r"scf\.for") == {"for start in range(0, K, DEPTH):"}


@pytest.mark.parametrize("target", ["cuda:90", "cuda:100", "hip:gfx942"])
def test_all_lines_are_of_the_kernel(target: str) -> None:
    made = assembled(launch_matmul(), target)
    for name, lines in made.lines.items():
        assert set(lines) <= {0, *range(made.line, made.line + 10)}, name


@pytest.mark.parametrize("target", ["cuda:90", "hip:gfx942"])
def test_texts_are_without_debug_information(target: str) -> None:
    for name, text in assembled(launch_softmax(), target).texts.items():
        noise = re.findall(r".*(?:\bloc\(|\.loc\b|!dbg|debug|DILocation|\.cfi|//##|fx_lsp).*", text)
        assert noise == [], name


@pytest.mark.parametrize(
    ("target", "name", "instruction"),
    [
        ("cuda:80", "ptx", r"\bmma\.sync"),
        ("cuda:80", "sass", r"\bHMMA\."),
        ("cuda:90", "ptx", r"\bwgmma\.mma_async"),
        ("cuda:90", "sass", r"\bHGMMA\."),
        ("cuda:100", "ptx", r"\btcgen05\.mma"),
        ("hip:gfx942", "amdgcn", r"\bv_mfma_f32"),
    ],
)
def test_a_matmul_runs_on_the_tensor_cores(target: str, name: str, instruction: str) -> None:
    made = assembled(launch_matmul(), target)
    assert "acc = tl.dot(left, right, acc)" in source_lines(made, name, instruction)
    assert [remark for remark in remarks(made) if remark.severity != "hint"] == []


def test_resources() -> None:
    row = assembled(launch_softmax()).resources
    assert 16 <= row.registers <= 64
    assert (row.threads, row.barriers, row.spill_stores, row.spill_loads) == (256, 1, 0, 0)
    assert 0 < row.shared <= 1024
    assert (row.occupancy.blocks, row.occupancy.fraction, row.occupancy.limited_by) == (8, 1.0, "warps")

    tiles = assembled(launch_matmul()).resources
    assert tiles.shared == 2 * (128 * 64 + 64 * 128) * 2


def test_resources_of_amd_agree_with_what_its_compiler_prints() -> None:
    for launch in (launch_add(), launch_softmax()):
        made = assembled(launch, "hip:gfx942")
        waves = re.search(r"^; Occupancy: (\d+)", made.texts["amdgcn"], re.MULTILINE)
        assert waves and made.resources.occupancy.fraction == int(waves[1]) / 8
        assert f"; NumVgprs: {made.resources.registers}\n" in made.texts["amdgcn"]
    assert assembled(launch_add(), "hip:gfx942").resources.threads == 256


def test_accesses_of_global_memory() -> None:
    assert assembled(launch_add()).accesses == (Access(9, "load", 128, 4), Access(10, "store", 128, 2))
    assert assembled(launch_add(), "hip:gfx942").accesses == (Access(9, "load", 128, 2), Access(10, "store", 128, 1))
    copied = {(a.line, a.kind, a.bits) for a in assembled(launch_matmul()).accesses}
    assert copied == {(35, "copy", 128), (36, "copy", 128), (38, "store", 128)}


def test_an_assembly_crosses_processes() -> None:
    made = assembled(launch_matmul())
    assert wire.from_json(Assembly, wire.to_json(made)) == made


def test_what_a_killed_compilation_left_is_removed_later(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name, hours in (("fx-lsp-kernel-killed", 2), ("fx-lsp-kernel-running", 0), ("of-somebody-else", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "fx_lsp_kernel.py").write_text("")
        os.utime(tmp_path / name, times=(time.time() - hours * 3600 - 60,) * 2)
    assert isinstance(compile_kernel(KERNELS, launch_add(), "cuda:80", "kernel.py"), CompiledKernel | Failure)
    assert sorted(os.listdir(tmp_path)) == ["fx-lsp-kernel-running", "of-somebody-else"]


def test_nothing_is_left_behind_and_the_environment_does_not_matter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """In a process of its own, as `TRITON_INTERPRET` is set here; it prints nothing."""
    expected = assembled(launch_add())
    disturbing = {"TRITON_INTERPRET": "1", "TRITON_DISABLE_LINE_INFO": "1", "TRITON_OVERRIDE_ARCH": "sm80"}
    folders = dict.fromkeys(("TMPDIR", "TRITON_CACHE_DIR", "TRITON_HOME"), str(tmp_path))
    for name, value in (disturbing | folders).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(assembly._other, "connect", cache(assembly.start_compiler))
    modules, environment = set(sys.modules), dict(os.environ)
    assert assemble(KERNELS, launch_add(), "cuda:90") == expected
    assert isinstance(assemble(KERNELS, launch_matmul(maxnreg=32), "cuda:90"), Failure)
    assert os.listdir(str(tmp_path)) == []
    assert tempfile.tempdir == str(tmp_path)
    assert dict(os.environ) == environment
    assert "fx_lsp_kernel" not in {name.partition(".")[0] for name in set(sys.modules) - modules}
    for stream in assembly._other.connect():
        stream.close()
    assert capfd.readouterr() == ("", "")


def said(made: Assembly, hidden: str = "$^") -> str:
    """Remarks as text: the line of the kernels, the severity, and the message in rows; numbers that vary are hidden."""
    source = ["", *KERNELS.splitlines()]
    rows: list[str] = []
    for remark in remarks(made):
        text = re.sub(hidden, "…", f"{remark.severity}: {remark.message}")
        rows += [
            "",
            source[remark.line].strip(),
            *textwrap.wrap(text, 90, initial_indent="    ", subsequent_indent="    "),
        ]
    return "\n".join([*rows, ""]) if rows else ""


def test_remark_on_narrow_loads() -> None:
    assert said(assembled(launch_add(aligned="x y out"))) == snapshot("""\

total = tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask)
    hint: loads of f32 move 32 bits for each thread, where 128 are possible: n is not
    known to be divisible by 16. Pass multiples of 16, or, if the mask never changes
    within a vector, declare it with tl.max_constancy

tl.store(out + at, total, mask=mask)
    hint: stores of f32 move 32 bits for each thread, where 128 are possible: n is not
    known to be divisible by 16. Pass multiples of 16, or, if the mask never changes
    within a vector, declare it with tl.max_constancy
""")
    assert said(assembled(launch_add(aligned=""), "hip:gfx942")) == snapshot("""\

total = tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask)
    hint: loads of f32 move 32 bits for each thread, where 128 are possible: x, y, out are
    not known to be aligned to 16 bytes. Pass tensors whose data_ptr() is

tl.store(out + at, total, mask=mask)
    hint: stores of f32 move 32 bits for each thread, where 128 are possible: x, y, out
    are not known to be aligned to 16 bytes. Pass tensors whose data_ptr() is
""")


def test_remark_on_scattered_loads() -> None:
    launch = LaunchSpec("every_other", {"x": "*fp16", "out": "*fp16"}, {}, ("x", "out"))
    assert said(assembled(launch)) == snapshot("""\

tl.store(out + at, tl.load(x + 2 * at))
    hint: loads of f16 move 16 bits for each thread, where 128 are possible: the elements
    of a thread are not known to be contiguous. Let the last dimension of the block run
    along the contiguous one of the tensor, or declare it with tl.multiple_of and
    tl.max_contiguous
""")


def test_remark_on_spills() -> None:
    made = assembled(launch_matmul(maxnreg=64), "cuda:80")
    assert made.resources.registers == 64
    assert made.resources.spill_stores > 0 and made.resources.spill_loads > 0
    assert said(made, hidden=r"\d+(?= bytes| back)|\d+ and \d+") == snapshot("""\

def matmul(a, b, c, N, K, M: tl.constexpr, BLOCK: tl.constexpr, DEPTH: tl.constexpr):
    information: matmul spills: 64 registers for each thread are too few, and it writes …
    bytes to memory and reads … back, most at lines …. To avoid it, raise maxnreg=64, or
    take smaller blocks than M=128, BLOCK=128, DEPTH=64 or more warps than num_warps=8
""")


def test_remark_on_too_much_shared_memory() -> None:
    assert said(assembled(launch_matmul(num_stages=8))) == snapshot("""\

def matmul(a, b, c, N, K, M: tl.constexpr, BLOCK: tl.constexpr, DEPTH: tl.constexpr):
    error: matmul cannot be launched: it needs 262144 bytes of shared memory, and a block
    on H100 has 232448: take smaller blocks than M=128, BLOCK=128, DEPTH=64 or fewer
    stages than num_stages=8
""")


def test_remark_on_dots_that_miss_the_tensor_cores() -> None:
    assert said(assembled(launch_precise())) == snapshot("""\

tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at), input_precision="ieee"))
    information: tl.dot of f32 became multiply-adds, not instructions of the tensor cores:
    allow input_precision="tf32", or cast both sides to bf16
""")
    assert said(assembled(launch_matmul(rows=32, num_warps=4))) == snapshot("""\

acc = tl.dot(left, right, acc)
    hint: tl.dot became mma.sync, not wgmma, which is faster on H100: wgmma needs blocks
    of at least 64 rows, and num_warps=4 or more
""")
    assert said(assembled(launch_matmul(rows=32, num_warps=4), "cuda:80")) == ""


def test_remark_on_low_occupancy() -> None:
    long_row = replace(launch_softmax(), constants={"BLOCK": 32768}, num_warps=8)
    assert said(assembled(long_row), hidden=r"\d+(?= for each)") == snapshot("""\

def softmax(x, out, stride, cols, BLOCK: tl.constexpr):
    hint: a multiprocessor holds 1 block of softmax at a time, 12% of its warps, because
    of registers (… for each thread): too few to hide the latency of memory. Take smaller
    blocks than BLOCK=32768 or more warps
""")


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90", "cuda:100", "hip:gfx942"])
def test_no_remarks_where_all_is_well(target: str) -> None:
    assert said(assembled(launch_add(), target)) == said(assembled(launch_softmax(), target)) == ""
