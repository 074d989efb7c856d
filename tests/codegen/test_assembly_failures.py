"""What cannot be assembled is a value: one sentence, and the line that is wrong where there is one."""

from __future__ import annotations

import pytest

from fx_lsp.codegen.inspect.assembly import assemble
from fx_lsp.codegen.inspect.compilation import LaunchSpec
from fx_lsp.model import Failure

pytest.importorskip("triton")

HEAD = "import triton\nimport triton.language as tl\n\n\n"


def failure(code: str, launch: LaunchSpec | None = None, target: str = "cuda:90") -> tuple[str, str, str]:
    """Its kind and message, and the code that it is shown at."""
    text = HEAD + code
    outcome = assemble(text, launch or LaunchSpec("f", {"x": "*fp32"}), target, "mine.py")
    assert isinstance(outcome, Failure)
    assert outcome.hint.count("\n") == 0
    span = outcome.span
    at = text.split("\n")[span.line - 1][span.col : span.end_col] if span else ""
    assert span is None or (span.file, span.end_line) == ("mine.py", span.line)
    return outcome.kind, outcome.message, at


@pytest.mark.parametrize(
    ("code", "kind", "message", "at"),
    [
        ("def f(:\n", "syntax", "the file does not parse: invalid syntax", "def f(:"),
        (
            "import not_there_at_all\n",
            "import",
            "the file cannot be imported: ModuleNotFoundError: No module named 'not_there_at_all'",
            "import not_there_at_all",
        ),
        (
            "def g():\n    return 1 / 0\n\n\nz = g()\n",
            "import",
            "the file cannot be imported: ZeroDivisionError: division by zero",
            "return 1 / 0",
        ),
        (
            "raise SystemExit('usage')\n",
            "import",
            "the file cannot be imported: SystemExit: usage",
            "raise SystemExit('usage')",
        ),
        ("def g(x):\n    pass\n", "error", "the file has no kernel named f", ""),
        ("def f(x):\n    pass\n", "error", "f is not a kernel: it lacks @triton.jit", "def f(x):"),
    ],
)
def test_files_that_have_no_kernel(code: str, kind: str, message: str, at: str) -> None:
    assert failure(code) == (kind, message, at)


KERNEL = "@triton.jit\ndef f(x, n, BLOCK: tl.constexpr):\n    tl.store(x + tl.arange(0, BLOCK), n)\n"


SIGNATURE = {"x": "*fp32", "n": "i32", "BLOCK": "constexpr"}


@pytest.mark.parametrize(
    ("signature", "constants", "message"),
    [
        ({"x": "*fp32", "BLOCK": "constexpr"}, {"BLOCK": 64}, "f is launched without its argument n"),
        (SIGNATURE, {}, "f is launched without a value of its constexpr BLOCK"),
        ({**SIGNATURE, "m": "i32"}, {"BLOCK": 64}, "f has no argument m"),
        ({**SIGNATURE, "x": "*fp99"}, {"BLOCK": 64}, "Triton cannot compile f for cuda:90: KeyError: 'fp99'"),
    ],
)
def test_a_launch_that_does_not_fit(signature: dict[str, str], constants: dict[str, int], message: str) -> None:
    launch = LaunchSpec("f", signature, dict(constants))
    assert failure(KERNEL, launch) == ("error", message, "def f(x, n, BLOCK: tl.constexpr):")


def test_targets() -> None:
    assert failure(KERNEL, target="cuda:1")[:2] == ("unsupported", "there is no target cuda:1")
    assert failure(KERNEL, target="metal") == ("unsupported", "there is no target metal", "")


ARANGE = "arange's range must be a power of 2"
HELPER = "@triton.jit\ndef helper(x):\n    return tl.load(x + tl.arange(0, 48))\n\n\n"


@pytest.mark.parametrize(
    ("before", "body", "message", "at"),
    [
        ("", "at = tl.arange(0, 48)\n    tl.store(x + at, 0)", ARANGE, "at = tl.arange(0, 48)"),
        ("", "tl.store(x, missing)", "missing is not defined", "tl.store(x, missing)"),
        (HELPER, "tl.store(x, tl.sum(helper(x)))", ARANGE, "return tl.load(x + tl.arange(0, 48))"),
        (
            "",
            "v = tl.load(x + tl.arange(0, 64))\n    tl.sort(v, dim=3)",
            "only minor dimension is currently supported",
            "tl.sort(v, dim=3)",
        ),
    ],
    ids=["in the kernel", "of a name", "in a function that it calls", "in a call of the library"],
)
def test_an_error_in_a_kernel(before: str, body: str, message: str, at: str) -> None:
    found = failure(f"{before}@triton.jit\ndef f(x):\n    {body}\n")
    assert found == ("error", f"Triton cannot compile f for cuda:90: {message}", at)


def test_an_error_of_the_assembler() -> None:
    code = (
        "@triton.jit\ndef f(x):\n    r = tl.arange(0, 128)\n    at = r[:, None] * 128 + r[None, :]\n"
        "    v = tl.load(x + at)\n    v = tl.dot(v, v)\n    tl.store(x + at, v.to(tl.float16))\n"
    )
    launch = LaunchSpec("f", {"x": "*fp16"}, {}, ("x",), options={"maxnreg": 32})
    kind, message, at = failure(code, launch)
    assert (kind, at) == ("error", "v = tl.dot(v, v)")
    assert message.startswith("Triton cannot compile f for cuda:90: Insufficient registers (32) to compile instruction")
