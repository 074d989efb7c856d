"""Kernels as a file of the user: what stands over it, and how its open text is changed."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fx_lsp.features.kernel_files import (
    KernelCheck,
    check_problems,
    check_title,
    conflicts_lens,
    edits,
    save_lens,
    written_lens,
)
from fx_lsp.features.source.pin import TextChange


@pytest.mark.parametrize(
    ("standing", "title"),
    [
        ("current", "kernels of m.py::f · up to date"),
        ("changed", "kernels of m.py::f · the function has changed since then: update"),
        ("gone", "kernels of m.py::f, which no longer exists"),
        ("unknown", "kernels of m.py::f"),
    ],
)
def test_whether_it_is_up_to_date(standing: str, title: str):
    lens = written_lens("m.py::f", "f", standing, "")
    assert (lens.title, lens.action, lens.name) == (title, "write kernel", "f")
    assert lens.span == save_lens("f", "").span


@pytest.mark.parametrize(("conflicts", "count"), [(1, "1 conflict"), (2, "2 conflicts")])
def test_conflicts_are_counted(conflicts: int, count: str):
    assert conflicts_lens("m.py::f", "f", conflicts).title == f"kernels of m.py::f · {count} to resolve"


KERNELS = '''"""f as Triton kernels."""


@triton.jit
def f_kernel(x):
    pass


def f(x):
    pass
'''
RIGHT = "right  out                               off by 0.0e+00, the original by 0.0e+00\n"
WRONG = "wrong  gradient of x                     off by 1.4e-02, the original by 2.9e-08\n"
RAISED = "Traceback (most recent call last):\n  …\nValueError: x must be contiguous\n"


@pytest.mark.parametrize(
    ("check", "title"),
    [
        (None, ""),
        (KernelCheck("m.py", KERNELS), " · checking…"),
        (KernelCheck("m.py", KERNELS, RIGHT), " · compared with the original: right"),
        (KernelCheck("m.py", "", RIGHT), " · compared with the original: right, before the last edit"),
        (KernelCheck("m.py", KERNELS, RIGHT + WRONG, True), " · wrong: gradient of x"),
        (KernelCheck("m.py", KERNELS, WRONG * 3, True), " · wrong: gradient of x and 2 more"),
        (KernelCheck("m.py", KERNELS, RAISED, True), " · wrong: ValueError: x must be contiguous"),
        (KernelCheck("m.py", KERNELS, "not checked: no triton\n"), " · not checked: no triton"),
        (
            KernelCheck("m.py", KERNELS, "not compared with the original: why\n"),
            " · not compared with the original: why",
        ),
    ],
)
def test_the_result_of_a_check_is_in_the_title(check: KernelCheck | None, title: str):
    assert check_title(check, KERNELS) == title


@pytest.mark.parametrize(
    ("output", "line", "message"),
    [
        (RIGHT + WRONG, 9, "gradient of x off by 1.4e-02, the original by 2.9e-08"),
        ("wrong  f_kernel does not compile: too large\n", 5, "f_kernel does not compile: too large"),
        ("wrong  line 4 is not valid in Python 3.10: no\n", 4, "line 4 is not valid in Python 3.10: no"),
        (RAISED, 9, "ValueError: x must be contiguous"),
    ],
)
def test_an_error_is_at_its_kernel_or_at_the_function(output: str, line: int, message: str):
    check = KernelCheck("m.py", KERNELS, output, True)
    (problem,) = check_problems(check, KERNELS)
    assert (problem.span.line, problem.severity, problem.message) == (
        line,
        "error",
        f"These kernels failed their check:\n{message}",
    )
    (lower,) = check_problems(check, KERNELS, above=3)
    assert lower.span.line == line + 3


def test_what_is_right_is_no_problem():
    assert check_problems(KernelCheck("m.py", KERNELS, RIGHT), KERNELS) == ()
    assert check_problems(KernelCheck("m.py", KERNELS), KERNELS) == ()


def test_only_what_differs_is_changed():
    assert edits(["a\n", "b\n", "c\n", ""], ["a\n", "B\n", "c\n", ""]) == (TextChange(2, 0, 3, 0, "B\n"),)
    assert edits(["a\n", "b\n", ""], ["a\n", "b\n", "c\n", ""]) == (TextChange(3, 0, 3, 0, "c\n"),)
    assert edits(["a\n", ""], ["a\n", ""]) == ()


LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n"]), max_size=8).map(lambda lines: [*lines, ""])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(LINES, LINES)
def test_the_changes_make_one_text_of_the_other(before: list[str], after: list[str]):
    lines = list(before)
    for edit in reversed(edits(before, after)):
        lines[edit.line - 1 : edit.end_line - 1] = [edit.text]
    assert "".join(lines) == "".join(after)
