"""Which mistakes that run are told: those that a setting asks for, and none that a comment says is none."""

from dataclasses import replace

import pytest
from inline_snapshot import snapshot
from samples import TRACE

from fx_lsp.features.source.findings import (
    FINDINGS,
    TOLD,
    Severities,
    ignoring,
    is_ignored,
    told,
    told_outcome,
    unknown_codes,
    unused_ignores,
    without_ignore,
)
from fx_lsp.features.wording.problems import Problem
from fx_lsp.model import Failure, FindingCode, Remark, Span, Target, Trace, Unreached

FILE = "/project/model.py"


def line(number: int) -> Span:
    return Span(FILE, number, 4, number, 9)


def test_kinds_that_nobody_asked_for_are_not_told() -> None:
    problems = [Problem(line(1), "hint", f"{code}.", code) for code in (*FINDINGS, "shape", "dimension")]
    assert [p.code for p in told(problems, TOLD, "")] == snapshot(
        [
            "all-pairs",
            "changed-in-place",
            "graph-break",
            "loss",
            "no-gradient",
            "one-element",
            "pytorch-warning",
            "recompile",
            "training",
            "unregistered",
            "upcast",
            "wrong-gradient",
            "shape",
            "dimension",
        ]
    )
    assert [p.code for p in told(problems, frozenset({"copy"}), "")] == ["copy", "shape", "dimension"]


@pytest.mark.parametrize(
    ("comment", "is_told"),
    [
        ("# fx: ignore", False),
        ("# fx: ignore[upcast]", False),
        ("# fx: ignore[copy, upcast]", False),
        ("# fx:ignore [ upcast ]", False),
        ("# noqa # fx: ignore[upcast]", False),
        ("# fx: ignore[upcast] because the table is exact", False),
        ("# fx: ignore because the table is exact  # fine", False),
        ("# fx: ignore[upcast] as the table is exact", True),
        ("# fx: ignore[upcast]  # the table is exact", False),
        ("# fx: ignore[copy]", True),
        ("# fx: ignore=f32[4]", True),
        ("# ignore[upcast]", True),
    ],
)
def test_a_comment_says_that_a_line_is_right(comment: str, is_told: bool) -> None:
    problem = Problem(line(2), "information", "Wide.", "upcast")
    assert bool(told([problem], TOLD, f"x = 1\ny = x * table  {comment}\n")) is is_told


def test_a_comment_on_any_line_of_an_expression_counts() -> None:
    text = "y = f(\n    x,  # fx: ignore[copy]\n)\n"
    assert is_ignored(Span(FILE, 1, 4, 3, 1), "copy", text)
    assert not is_ignored(Span(FILE, 1, 4, 1, 5), "copy", text)


def test_a_failure_that_is_ignored_is_no_error() -> None:
    failure = Failure("shape", "no", line(1), severity="error")
    assert told_outcome(failure, TOLD, "y = x @ w  # fx: ignore[shape]\n") == replace(failure, severity="information")
    assert told_outcome(failure, TOLD, "y = x @ w\n") == failure


def test_a_listing_has_the_findings_that_are_told() -> None:
    remarks = (Remark("wide", line(1), code="upcast"), Remark("copied", line(2), code="copy"), Remark("B is 3", None))
    assert told_outcome(replace(TRACE, remarks=remarks), TOLD, "") == replace(TRACE, remarks=(remarks[0], remarks[2]))


@pytest.mark.parametrize(
    ("severities", "codes", "reported"),
    [
        ({}, TOLD, {"upcast": "hint"}),
        ({"upcast": "error", "copy": "warning"}, TOLD, {"upcast": "error", "copy": "warning"}),
        ({"upcast": "off"}, TOLD, {}),
        ({"upcast": "error"}, TOLD - {"upcast"}, {}),
        ({"copy": "off"}, TOLD | {"copy"}, {"upcast": "hint", "copy": "hint"}),
    ],
)
def test_a_project_sets_severities_and_a_user_has_priority(
    severities: Severities, codes: frozenset[FindingCode], reported: dict[str, str]
) -> None:
    problems = [Problem(line(1), "hint", "It is.", code) for code in ("upcast", "copy")]
    assert {p.code: p.severity for p in told(problems, codes, "", severities)} == reported
    remarks = (Remark("wide", line(1), "information", code="upcast"), Remark("copied", line(1), code="copy"))
    outcome = told_outcome(replace(TRACE, remarks=remarks), codes, "", severities)
    assert isinstance(outcome, Trace)
    assert [remark.code for remark in outcome.remarks] == [*reported]


def test_the_severity_of_a_failure_is_set_too() -> None:
    failure = Failure("import", "no", line(1))
    assert told_outcome(failure, TOLD, "", {"import": "error"}) == replace(failure, severity="error")
    assert told_outcome(replace(failure, severity="error"), TOLD, "", {"import": "off"}) == failure


IGNORING = """\
def f(x):
    y = x * 2.0  # fx: ignore[upcast, copy]
    z = y + 1  # fx: ignore[copy]
    if x is None:
        return y.reshape(-1)  # fx: ignore[copy]
    return z  # fx: ignore because of the table


WIDTH = 3  # fx: ignore[copy]
"""


def test_a_comment_that_ignores_nothing_is_told() -> None:
    whole = Span(FILE, 1, 0, 6, 12)
    f = Target(FILE, "f", "function", Span(FILE, 1, 4, 1, 5), whole)
    trace = replace(TRACE, unreached=(Unreached(Span(FILE, 5, 8, 5, 30), "condition"),))
    problems = [Problem(line(2), "information", "Wide.", "upcast")]
    unused = list(unused_ignores(FILE, IGNORING, [(f, trace)], problems))
    assert [(p.span.line, p.message) for p in unused] == snapshot(
        [
            (3, "`# fx: ignore[copy]` ignores nothing: the traces have no such problem on this line."),
            (6, "`# fx: ignore` ignores nothing: the traces have no such problem on this line."),
        ]
    )
    assert IGNORING.splitlines()[2][unused[0].span.col :] == "# fx: ignore[copy]"
    failed = Failure("shape", "no", line(3))
    assert list(unused_ignores(FILE, IGNORING, [(f, failed)], [])) == [], "nothing is known of what did not run"


@pytest.mark.parametrize(
    ("code", "left"),
    [
        ("x = 1  # fx: ignore[copy]\ny = 2\n", "x = 1\ny = 2\n"),
        ("x = 1  # fx: ignore because of y\n", "x = 1\n"),
        ("x = 'ü'  # noqa  # fx: ignore[copy]\n", "x = 'ü'  # noqa\n"),
        ("x = 1  # fx: ignore[copy]  # fine\n", "x = 1  # fine\n"),
        ("x = 1\r\n    # fx: ignore\r\ny = 2\r\n", "x = 1\r\ny = 2\r\n"),
        ("x = '# fx: ignore'\n", None),
    ],
)
def test_a_comment_that_ignores_nothing_is_removed(code: str, left: str | None) -> None:
    number = next(n for n, text in enumerate(code.split("\n"), 1) if "# fx:" in text)
    text = code.split("\n")[number - 1]
    col = len(text[: text.index("# fx:")].encode())
    change = without_ignore(code, Span(FILE, number, col, number, col + 5))
    assert (None if change is None else change.applied(code)) == left


def test_an_unknown_code_is_told_where_it_stands() -> None:
    text = "x = 1\ny = x  # fx: ignore[upcast, cast] # fine\n"
    (problem,) = unknown_codes(FILE, text)
    assert (problem.severity, problem.code) == ("warning", "comment")
    assert text.splitlines()[1][problem.span.col : problem.span.end_col] == "cast"
    assert problem.message.startswith("`cast` is not the code of a problem; the codes of findings are all-pairs, ")


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("y = x * w\n", "y = x * w  # fx: ignore[upcast]\n"),
        ("y = x * w  # wide\n", "y = x * w  # wide  # fx: ignore[upcast]\n"),
        ("y = x * w  # fx: ignore[copy]\n", "y = x * w  # fx: ignore[copy, upcast]\n"),
        ("é = x * w\n", "é = x * w  # fx: ignore[upcast]\n"),
    ],
)
def test_a_comment_is_offered_that_ignores_it(text: str, changed: str) -> None:
    change = ignoring(text, Span(FILE, 1, 4, 1, 9), "upcast")
    assert change is not None
    line, rest = text.encode().split(b"\n", 1)
    assert (line[: change.col] + change.text.encode() + line[change.col :] + b"\n" + rest).decode() == changed
    assert is_ignored(Span(FILE, 1, 4, 1, 9), "upcast", changed)


def test_a_comment_goes_where_one_can_stand() -> None:
    change = ignoring('f(x,\n  """a\nb""")\n', Span(FILE, 1, 0, 3, 5), "upcast")
    assert change is not None and change.line == 3
    assert ignoring('x = """a\nb"""\n', Span(FILE, 1, 0, 1, 5), "upcast") is None
    assert ignoring("x = y + \\\n    w\n", Span(FILE, 1, 0, 1, 5), "upcast") is None
    assert ignoring("y = x @ w\n", Span(FILE, 1, 0, 1, 5), "shape") is None, "an error is mended"
