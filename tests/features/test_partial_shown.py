"""What an editor shows of a target that fails, up to the line that fails."""

from dataclasses import replace

from inline_snapshot import snapshot
from samples import FAILURE, FILE, function, span

from fx_lsp.features.documents import render_stage
from fx_lsp.features.hints import TracedTarget, hints
from fx_lsp.features.hover import HoverStyle, HoverSubject, hover_expression, hover_name
from fx_lsp.features.lenses import lenses
from fx_lsp.features.partial import shown_trace
from fx_lsp.model import Node, ObservedValue, Span, Stage, StageInfo, Trace, Unreached

SOURCE = """\
import torch


def g(x):
    y = x.sin()
    z = y @ y
    return z.cos()
"""
G = function("g", SOURCE[SOURCE.index("def g") :].rstrip("\n"), SOURCE)
SIN, MATMUL = span("x.sin()", SOURCE), span("y @ y", SOURCE)
RAN = Stage(
    "torch",
    (
        Node("x", "placeholder", "x", spec="f32[8, 128]"),
        Node("y", "call_method", "sin", ("x",), ("x",), ("matmul",), "f32[8, 128]", (SIN,)),
        Node("matmul", "call_method", "matmul", ("y", "y"), ("y",), (), None, (MATMUL,), "fails here"),
    ),
)
PARTIAL = Trace(
    f"{FILE}::g",
    FAILURE.inputs,
    (StageInfo("torch", 1, 3, "as written, up to the failure"),),
    (),
    (ObservedValue(span("y = x.sin()", SOURCE), "y", "f32[8, 128]"), ObservedValue(SIN, "", "f32[8, 128]")),
    (),
    0.0,
    "2.13.0",
    unreached=(Unreached(span("return z.cos()", SOURCE), "failed"),),
)
BROKEN = replace(FAILURE, span=MATMUL, partial=PARTIAL)


def hovered(code: str, problems: bool = True) -> str | None:
    place = span(code, SOURCE)
    found = hover_expression(HoverSubject(SOURCE, G, BROKEN, (RAN,)), place.line, place.col, HoverStyle(problems))
    return None if found is None else found.markdown


def test_the_lens_that_says_where_leads_to_the_graph_as_well():
    assert [(lens.title, lens.action, lens.stage) for lens in lenses(G, BROKEN, stale=False)] == snapshot(
        [("not traced: line 6", "show failure", ""), ("show partial graph", "show stage", "torch")]
    )


def test_hints_stand_before_the_line_that_fails_and_say_so():
    found = hints(SOURCE, [TracedTarget(G, BROKEN, RAN)], 1, 100)
    assert [(hint.line, hint.label, hint.tooltip) for hint in found] == snapshot(
        [
            (
                5,
                ": ~f32[8, 128]",
                "from sin · partial: up to line 6, where it fails · `~`: a guessed size; nothing in the code fixes it",
            )
        ]
    )


def test_a_hover_has_the_value_and_the_operation_that_ran():
    assert hovered("sin()") == snapshot("""\
```python
~f32[8, 128]
```

*`~`: a guessed size; nothing in the code fixes it*

torch · 1 op

```python
x.sin() -> f32[8, 128]
```

*partial: up to line 6, where it fails*\
""")


def test_a_hover_on_what_fails_is_still_the_failure():
    assert hovered("y @ y", problems=False) == snapshot("""\
**Not traced** (shape): matmul of f32[8, 128] and f32[8, 128]: 128 and 8 differ.

Write the shapes down in a comment.

Tried with

- `x: ~f32[8, 128]` · guessed

*`~`: a guessed size; nothing in the code fixes it*\
""")


def test_a_hover_behind_it_says_what_failed():
    assert hovered("z.cos()") == snapshot("*not run: line 6 fails*")


def test_the_name_has_the_failure_and_what_ran():
    found = hover_name(
        G, BROKEN, stale=False, stage=RAN, style=HoverStyle(link=lambda name, stage: f"command:{name}/{stage}")
    )
    assert found.markdown == snapshot("""\
**Not traced** (shape): matmul of f32[8, 128] and f32[8, 128]: 128 and 8 differ.

Write the shapes down in a comment.

Tried with

- `x: ~f32[8, 128]` · guessed

*`~`: a guessed size; nothing in the code fixes it*

**Partial**: 1 op ran, up to line 6, where it fails · [show partial graph](command:g/torch)

```python
def torch(x: f32[8, 128]):
    # model.py:5
    y: f32[8, 128] = x.sin()
    # model.py:6
    matmul = y.matmul(y)  # fails here
```\
""")


def test_the_document_says_how_far_it_goes():
    known = shown_trace(BROKEN, FILE)
    assert known is not None

    def source_line(place: Span) -> str:
        return SOURCE.splitlines()[place.line - 1]

    assert render_stage(known, RAN, source_line).text == snapshot("""\
# model.py::g · torch graph · 1 op
# torch 2.13.0 · as written, up to the failure
#   x: ~f32[8, 128]   (search)
# note: partial: up to line 6, where it fails: matmul of f32[8, 128] and f32[8, 128]: 128 and 8 differ

def torch(x: f32[8, 128]):
    # model.py:5  y = x.sin()
    y: f32[8, 128] = x.sin()

    # model.py:6  z = y @ y
    matmul = y.matmul(y)  # fails here
""")
