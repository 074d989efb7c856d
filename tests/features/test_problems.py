from dataclasses import replace

from inline_snapshot import snapshot
from samples import BROKEN, FAILURE, FILE, MATMUL, TRACE, F

from fx_lsp.features.wording.problems import problems
from fx_lsp.model import Failure, Remark, Span


def test_a_failure_stands_on_its_expression():
    (problem,) = problems(FILE, [(F, TRACE), (BROKEN, FAILURE)], None)
    assert (problem.span, problem.severity, problem.code, problem.related) == (FAILURE.span, "error", "shape", ())
    assert problem.message == snapshot(
        "matmul of f32[8, 128] and f32[8, 128]: 128 and 8 differ. Write the shapes down in a comment."
    )


def test_code_that_runs_has_no_problem():
    assert problems(FILE, [(F, TRACE), (BROKEN, None)], None) == ()


def test_a_remark_of_a_trace_stands_where_the_code_asks_for_it():
    remarks = (
        Remark("B becomes 8 here: the code asks for it", MATMUL),
        Remark("T becomes 4 in the backward pass", None),
    )
    found = problems(FILE, [(F, replace(TRACE, remarks=remarks))], None)
    assert [(p.span, p.severity, p.code, p.message) for p in found] == [
        (F.name_span, "information", "dimension", "f: T becomes 4 in the backward pass."),
        (MATMUL, "information", "dimension", "B becomes 8 here: the code asks for it."),
    ]


def test_a_failure_without_a_place_stands_at_the_name():
    (problem,) = problems(FILE, [(BROKEN, replace(FAILURE, span=None))], None)
    assert problem.span == BROKEN.name_span


def test_a_failure_in_another_file_stands_at_the_name_and_points_there():
    elsewhere = Span("/project/other.py", 3, 0, 3, 5)
    (problem,) = problems(FILE, [(BROKEN, replace(FAILURE, span=elsewhere))], None)
    assert problem.span == BROKEN.name_span
    assert [r.span for r in problem.related] == [elsewhere]


def test_a_cause_that_targets_share_stands_once():
    shared = Failure("import", "there is no package einops", Span(FILE, 1, 0, 1, 12))
    (problem,) = problems(FILE, [(F, shared), (BROKEN, shared)], None)
    assert [r.message for r in problem.related] == ["traced f", "also reached from broken"]


def test_a_failure_inside_a_target_is_that_target_s():
    own = replace(FAILURE, severity="information", message="128 and 8 differ", hint="`# fx: x=f32[8, 8]`")
    through = replace(own, message="64 and 8 differ", hint="`# fx: y=f32[8, 64]`")
    for known in ([(F, through), (BROKEN, own)], [(BROKEN, own), (F, through)]):
        (problem,) = problems(FILE, known, None)
        assert (problem.span, problem.message) == (own.span, "128 and 8 differ. `# fx: x=f32[8, 8]`.")
        assert [r.message for r in problem.related] == ["also reached from f"]
    line = replace(own.span, col=own.span.col - 4, end_col=own.span.end_col + 9)
    assert len(problems(FILE, [(F, replace(through, span=line)), (BROKEN, own)], None)) == 1
    (problem,) = problems(FILE, [(F, replace(through, severity="error")), (BROKEN, own)], None)
    assert (problem.severity, problem.message) == ("error", "64 and 8 differ. `# fx: y=f32[8, 64]`.")


def test_a_finding_that_targets_reach_with_other_shapes_stands_once():
    own, wide = (Remark(f"f32[{n}] is copied", MATMUL, "warning", code="pytorch-warning") for n in (4, 8))
    other = Remark("the mean of no element", MATMUL, "warning", code="one-element")
    around = replace(BROKEN, name="around", span=replace(BROKEN.span, line=1, end_line=99))
    inner = replace(F, span=replace(MATMUL, line=MATMUL.line - 1))
    known = [(around, replace(TRACE, remarks=(wide,))), (inner, replace(TRACE, remarks=(own, other)))]
    for outcomes in (known, known[::-1]):
        found = problems(FILE, outcomes, None)
        assert [(p.message, [r.message for r in p.related]) for p in found] == [
            ("f32[4] is copied.", ["also reached from around"]),
            ("the mean of no element.", []),
        ]


def test_a_failure_in_another_file_that_targets_share_stands_once():
    elsewhere = replace(FAILURE, span=Span("/project/other.py", 3, 0, 3, 5))
    (problem,) = problems(FILE, [(F, elsewhere), (BROKEN, elsewhere)], None)
    assert (problem.span, problem.related[1].message) == (F.name_span, "also reached from broken")


def test_an_interpreter_without_torch_is_one_problem():
    missing = Failure("no-torch", "there is no torch in /usr/bin/python3", hint="pip install torch")
    (problem,) = problems(FILE, [(F, missing), (BROKEN, missing)], None)
    assert problem.message == snapshot("there is no torch in /usr/bin/python3. pip install torch.")
    assert problem.span == F.name_span


def test_a_syntax_error_is_information_only():
    syntax = Failure("syntax", "invalid syntax", Span(FILE, 4, 2, 4, 3), severity="error")
    (problem,) = problems(FILE, [], syntax)
    assert (problem.span, problem.severity, problem.message) == snapshot(
        (
            Span(file="/project/model.py", line=4, col=2, end_line=4, end_col=3),
            "information",
            "invalid syntax. No graphs are shown until the file parses.",
        )
    )
    (problem,) = (p for p in problems(FILE, [(F, Failure("unsupported", "no"))], syntax) if p.code == "syntax")
    assert problem.message == snapshot("invalid syntax. fx-lsp shows the graphs of the last version that parsed.")


def test_a_file_without_an_interpreter_says_so():
    missing = Failure("interpreter", "there is no interpreter /nowhere/python", hint="Set fx-lsp.interpreter")
    (problem,) = problems(FILE, [(F, None)], missing)
    assert (problem.span.line, problem.code, problem.message) == snapshot(
        (1, "interpreter", "there is no interpreter /nowhere/python. Set fx-lsp.interpreter.")
    )
