"""What cannot be assembled is a value: one sentence, and the line that is wrong where there is one."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

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


def test_text_that_does_not_parse() -> None:
    assert failure("def f(:\n") == snapshot(("syntax", "the file does not parse: invalid syntax", "def f(:"))


def test_imports_that_fail() -> None:
    assert failure("import not_there_at_all\n") == snapshot(
        (
            "import",
            "the file cannot be imported: ModuleNotFoundError: No module named 'not_there_at_all'",
            "import not_there_at_all",
        )
    )
    assert failure("def g():\n    return 1 / 0\n\n\nz = g()\n") == snapshot(
        ("import", "the file cannot be imported: ZeroDivisionError: division by zero", "return 1 / 0")
    )
    assert failure("raise SystemExit('usage')\n") == snapshot(
        ("import", "the file cannot be imported: SystemExit: usage", "raise SystemExit('usage')")
    )


def test_what_is_no_kernel() -> None:
    assert failure("def g(x):\n    pass\n") == snapshot(("error", "the file has no kernel named f", ""))
    assert failure("def f(x):\n    pass\n") == snapshot(
        ("error", "f is not a kernel: it lacks @triton.jit", "def f(x):")
    )


KERNEL = "@triton.jit\ndef f(x, n, BLOCK: tl.constexpr):\n    tl.store(x + tl.arange(0, BLOCK), n)\n"


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        (
            LaunchSpec("f", {"x": "*fp32", "BLOCK": "constexpr"}, {"BLOCK": 64}),
            snapshot("f is launched without its argument n"),
        ),
        (
            LaunchSpec("f", {"x": "*fp32", "n": "i32", "BLOCK": "constexpr"}),
            snapshot("f is launched without a value of its constexpr BLOCK"),
        ),
        (
            LaunchSpec("f", {"x": "*fp32", "n": "i32", "m": "i32", "BLOCK": "constexpr"}, {"BLOCK": 64}),
            snapshot("f has no argument m"),
        ),
        (
            LaunchSpec("f", {"x": "*fp99", "n": "i32", "BLOCK": "constexpr"}, {"BLOCK": 64}),
            snapshot("Triton cannot compile f for cuda:90: KeyError: 'fp99'"),
        ),
    ],
)
def test_a_launch_that_does_not_fit(launch: LaunchSpec, message: str) -> None:
    assert failure(KERNEL, launch) == ("error", message, "def f(x, n, BLOCK: tl.constexpr):")


def test_targets() -> None:
    assert failure(KERNEL, target="cuda:1")[:2] == snapshot(("unsupported", "there is no target cuda:1"))
    assert failure(KERNEL, target="metal") == snapshot(("unsupported", "there is no target metal", ""))


def test_an_error_in_a_kernel() -> None:
    assert failure("@triton.jit\ndef f(x):\n    at = tl.arange(0, 48)\n    tl.store(x + at, 0)\n") == snapshot(
        ("error", "Triton cannot compile f for cuda:90: arange's range must be a power of 2", "at = tl.arange(0, 48)")
    )
    assert failure("@triton.jit\ndef f(x):\n    tl.store(x, missing)\n") == snapshot(
        ("error", "Triton cannot compile f for cuda:90: missing is not defined", "tl.store(x, missing)")
    )


def test_an_error_in_a_function_that_a_kernel_calls() -> None:
    helper = "@triton.jit\ndef helper(x):\n    return tl.load(x + tl.arange(0, 48))\n\n\n"
    assert failure(helper + "@triton.jit\ndef f(x):\n    tl.store(x, tl.sum(helper(x)))\n") == snapshot(
        (
            "error",
            "Triton cannot compile f for cuda:90: arange's range must be a power of 2",
            "return tl.load(x + tl.arange(0, 48))",
        )
    )


def test_an_error_in_a_call_of_the_library() -> None:
    assert failure(
        "@triton.jit\ndef f(x):\n    v = tl.load(x + tl.arange(0, 64))\n    tl.sort(v, dim=3)\n"
    ) == snapshot(
        (
            "error",
            "Triton cannot compile f for cuda:90: only minor dimension is currently supported",
            "tl.sort(v, dim=3)",
        )
    )


def test_an_error_of_the_assembler() -> None:
    code = (
        "@triton.jit\ndef f(x):\n    r = tl.arange(0, 128)\n    at = r[:, None] * 128 + r[None, :]\n"
        "    v = tl.load(x + at)\n    v = tl.dot(v, v)\n    tl.store(x + at, v.to(tl.float16))\n"
    )
    launch = LaunchSpec("f", {"x": "*fp16"}, {}, ("x",), options={"maxnreg": 32})
    kind, message, at = failure(code, launch)
    assert (kind, at) == ("error", "v = tl.dot(v, v)")
    assert message.startswith("Triton cannot compile f for cuda:90: Insufficient registers (32) to compile instruction")
