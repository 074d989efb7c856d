"""Sizes by the names that the code has for them, in hints, hovers, documents and pictures."""

from dataclasses import replace

import pytest
from inline_snapshot import snapshot
from samples import FORWARD, RELU, SOURCE, TRACE, F, span

from fx_lsp.features.documents.document import render_stage
from fx_lsp.features.hints import HintStyle, TracedTarget, hints
from fx_lsp.features.hover import HoverStyle, HoverSubject, hover_expression, hover_name
from fx_lsp.features.picture import picture
from fx_lsp.features.wording.dimensions import SizeNames, SizeStyle
from fx_lsp.features.wording.guesses import LEGEND
from fx_lsp.model import InputSpec, NamedSizes, ObservedValue, Trace

FIRST = span("y = x @ w")
NAMED = replace(
    TRACE,
    named=(
        NamedSizes("value", FIRST, "y", (8, 4), ("n", "2*m")),
        NamedSizes("operation", span("x @ w"), "", (8, 4), ("n", "2*m")),
        NamedSizes("operation", RELU, "", (8, 4), ("n", "")),
        NamedSizes("input", None, "x", (8, 128), ("n", "")),
        NamedSizes("value", span("return y.sum(dim=-1)"), "return", (8,), ("n",)),
    ),
)


def labels(trace: Trace, sizes: SizeStyle) -> list[tuple[str, str]]:
    return [(hint.label, hint.tooltip) for hint in hints(SOURCE, [TracedTarget(F, trace)], 1, 100, HintStyle(sizes))]


@pytest.mark.parametrize(
    ("style", "label"),
    [("names", ": ~f32[n, 2*m]"), ("numbers", ": ~f32[8, 4]"), ("both", ": ~f32[n=8, 2*m=4]")],
)
def test_hints(style: SizeStyle, label: str):
    assert labels(NAMED, style)[0] == (label, LEGEND if style == "numbers" else f"f32[8, 4] · {LEGEND}")


def test_hovers_have_the_numbers_too():
    line, col = 5, SOURCE.splitlines()[4].index("y")
    shown = hover_expression(HoverSubject(SOURCE, F, NAMED, [FORWARD]), line, col)
    assert shown is not None and "y: ~f32[n=8, 2*m=4]" in shown.markdown
    plain = hover_expression(HoverSubject(SOURCE, F, NAMED, [FORWARD]), line, col, HoverStyle(names=False))
    assert plain is not None and "y: ~f32[8, 4]" in plain.markdown
    head = hover_name(F, NAMED, False, None).markdown
    assert "def f(x: ~f32[n=8, 128], w: f32[128, 4], n=4) -> ~f32[n=8]" in head


def test_hovers_say_what_fixes_a_size():
    value = ObservedValue(FIRST, "y", "f32[8, 4]")
    fixed = NamedSizes("value", FIRST, "y", (8, 4), ("n", ""), (RELU, span("x @ w")))
    of_input = NamedSizes("input", None, "x", (8, 128), ("", ""), (None, FIRST))
    trace = replace(TRACE, values=(value,), named=(fixed, of_input), inputs=(InputSpec("x", "f32[8, 128]", "comment"),))
    subject = HoverSubject(SOURCE, F, trace)
    shown = hover_expression(subject, FIRST.line, FIRST.col)
    assert shown is not None
    assert shown.markdown.split("\n\n")[1:] == snapshot(
        ["8: `n` of line 4, fixed by `y.relu()` at line 7", "4: fixed by `x @ w` at line 5"]
    )
    head = SOURCE.split("\n")[F.name_span.line - 1]
    of_parameter = hover_expression(subject, F.name_span.line, head.index("x"))
    assert of_parameter is not None
    assert of_parameter.markdown.split("\n\n")[1:] == snapshot(["128: fixed by `y = x @ w` at line 5"])


def test_documents():
    lines = render_stage(NAMED, FORWARD, lambda place: None, sizes="names").text.splitlines()
    assert [line for line in lines if "f32" in line or "with" in line] == snapshot(
        [
            "#   x: ~f32[n, 128]   (search)",
            "#   w: f32[128, 4]   (call site, line 12)",
            "#   with n = 8",
            "    x: f32[n, 128],  # saved for backward, 4 KiB",
            "    w: f32[128, 4],",
            "    mm: f32[n, 2*m] = aten.mm.default(x, w)",
            "    relu: f32[n, 4] = aten.relu.default(mm)  # saved for backward, 128 B",
            '    loss: "f32[]" = aten.sum.default(relu)  # keepdim',
        ]
    )
    numbers = render_stage(NAMED, FORWARD, lambda place: None).text
    assert numbers == render_stage(TRACE, FORWARD, lambda place: None, sizes="names").text


def test_pictures():
    boxes = picture(NAMED, FORWARD, lambda place: None, "names").boxes
    assert [(box.name, box.spec, box.bytes) for box in boxes if box.spec] == snapshot(
        [
            ("x", "f32[n, 128]", 4096),
            ("w", "f32[128, 4]", 2048),
            ("mm", "f32[n, 2*m]", 128),
            ("relu", "f32[n, 4]", 128),
            ("loss", "f32[]", 4),
        ]
    )


def test_several_tensors_and_strides():
    value = ObservedValue(FIRST, "pair", "(f32[8, 4], {'a': i64[8, 4](1, 8)}, f32[4])")
    trace = replace(TRACE, named=(NamedSizes("value", FIRST, "pair", (8, 4), ("n", "")),))
    assert SizeNames(trace, "names").of_value(value) == "(f32[n, 4], {'a': i64[n, 4]}, f32[4])"
    assert SizeNames(trace, "both").of_value(value) == "(f32[n=8, 4], {'a': i64[n=8, 4](1, 8)}, f32[4])"


def test_results_of_equal_sizes_and_other_names_have_numbers():
    returned = span("return y.sum(dim=-1)")
    other = NamedSizes("value", span("y = y.relu() + 1"), "return", (8,), ("m",))
    trace = replace(TRACE, named=(NamedSizes("value", returned, "return", (8,), ("n",)), other))
    assert SizeNames(trace, "names").of_output("f32[8]") == "f32[8]"


def test_an_input_of_that_name_alone_has_the_names():
    assert SizeNames(NAMED, "names").of_input(InputSpec("z", "f32[8, 128]", "search")) == "f32[8, 128]"
