from dataclasses import replace

import pytest
from inline_snapshot import snapshot
from samples import BACKWARD, BROKEN, FAILURE, FORWARD, MATMUL, SOURCE, TRACE, F, span

from fx_lsp.features.hover import Hover, HoverStyle, HoverSubject, around_break, hover_expression, hover_name
from fx_lsp.model import CapturedGraph, InputSpec, Remark, Span, Stage, StageInfo


def hover_at(code: str, ahead: int = 0) -> Hover | None:
    """The hover on the character `ahead` of the first occurrence of `code` in the sample."""
    place, subject = span(code), HoverSubject(SOURCE, F, TRACE, (FORWARD, BACKWARD))
    return hover_expression(subject, place.line, place.col + ahead, HoverStyle(chip="cuda:90"))


def text(hover: Hover | None) -> str | None:
    return None if hover is None else hover.markdown


def test_a_graph_break_has_the_graphs_around_it() -> None:
    printed = Span(F.file, F.span.line + 1, 4, F.span.line + 1, 12)
    before = CapturedGraph(1, 3, Span(F.file, 3, 4, 5, 9))
    broken = Remark("breaks here", printed, code="graph-break", before=before, after=CapturedGraph(2, 1, None))
    shown = hover_expression(HoverSubject(SOURCE, F, replace(TRACE, remarks=(broken,))), printed.line, 0)
    on_request = hover_expression(HoverSubject(SOURCE, F, TRACE, requested=(broken,)), printed.line, 0)
    assert shown is not None
    assert on_request == shown
    assert shown.markdown == snapshot(
        "torch.compile: graph 1 (lines 3–5, 3 ops) | **this runs in Python** | graph 2 (1 op)"
    )
    first = replace(broken, before=None)
    assert around_break(first) == "torch.compile: **this runs in Python** | graph 2 (1 op)"


def test_the_name_of_a_function():
    hover = hover_name(F, TRACE, stale=False, stage=FORWARD)
    assert hover.span == F.name_span
    assert hover.markdown == snapshot("""\
```python
def f(x: ~f32[8, 128], w: f32[128, 4], n=4) -> ~f32[8]
```

- `x: ~f32[8, 128]` · guessed
- `w: f32[128, 4]` · from the call at line 12
- `n=4` · default

*`~`: a guessed size; nothing in the code fixes it*

3 ops forward · 2 ops backward · saves ~128 B for backward (and reads ~4 KiB of inputs)

```python
def forward(
    x: f32[8, 128],  # saved for backward, 4 KiB
    w: f32[128, 4],
):
    # model.py:5
    mm: f32[8, 4] = aten.mm.default(x, w)
    # model.py:7
    relu: f32[8, 4] = aten.relu.default(mm)  # saved for backward, 128 B
    # model.py:8
    loss: "f32[]" = aten.sum.default(relu)  # keepdim
    return (loss, x, relu)
```

*the whole module was imported, because `x` is global*

torch 2.13.0 · traced in 61 ms\
""")


def test_links_are_for_clients_that_follow_them():
    hover = hover_name(
        F, TRACE, stale=True, stage=None, style=HoverStyle(link=lambda name, stage: f"command:show?{name},{stage}")
    )
    assert "[show backward graph](command:show?f,backward)" in hover.markdown
    assert "[pin inputs](command:show?f,pin inputs) · [why saved](command:show?f,why saved)" in hover.markdown
    assert hover.markdown.startswith("*stale")


def test_a_module_shows_its_constructor_and_containers():
    inputs = (
        InputSpec("init.dim", "64", "default"),
        InputSpec("x", "f32[2, 64]", "search"),
        InputSpec("rope[0]", "f32[2]", "search"),
        InputSpec("rope[1]", "f32[2]", "search"),
    )
    hover = hover_name(replace(F, kind="module", name="Block"), replace(TRACE, inputs=inputs), False, None)
    assert hover.markdown.split("```")[1] == snapshot("""\
python
Block(dim=64)
def forward(x: f32[2, 64], rope: (f32[2], f32[2])) -> f32[8]
""")


def test_the_mode_of_a_module_is_an_input_and_no_parameter():
    inputs = (InputSpec("self.training", "False", "comment"), InputSpec("x", "f32[2, 64]", "search"))
    hover = hover_name(replace(F, kind="module", name="Block"), replace(TRACE, inputs=inputs), False, None)
    assert "def forward(x: f32[2, 64])" in hover.markdown
    assert "`self.training=False` · from the `# fx:` comment" in hover.markdown


def test_a_long_signature_has_a_line_for_each_parameter():
    inputs = tuple(InputSpec(f"tensor_{i}", "f32[8, 128]", "search") for i in range(5))
    hover = hover_name(F, replace(TRACE, inputs=inputs), False, None)
    assert hover.markdown.split("```")[1] == snapshot("""\
python
def f(
    tensor_0: f32[8, 128],
    tensor_1: f32[8, 128],
    tensor_2: f32[8, 128],
    tensor_3: f32[8, 128],
    tensor_4: f32[8, 128],
) -> f32[8]
""")


def test_a_failure():
    assert hover_name(BROKEN, FAILURE, False, None).markdown == snapshot("""\
**Not traced** (shape): matmul of f32[8, 128] and f32[8, 128]: 128 and 8 differ.

Write the shapes down in a comment.

Tried with

- `x: ~f32[8, 128]` · guessed

*`~`: a guessed size; nothing in the code fixes it*\
""")
    line, col = FAILURE.span.line, FAILURE.span.col
    subject = HoverSubject(SOURCE, BROKEN, FAILURE)
    plain, told = (hover_expression(subject, line, col + 2, HoverStyle(problems=told)) for told in (False, True))
    assert plain is not None and told is not None
    assert plain.span == FAILURE.span
    assert told.markdown.partition("\n")[0] == "**Not traced** (shape)"
    assert told.markdown.partition("Tried")[2] == plain.markdown.partition("Tried")[2] != ""
    assert hover_expression(HoverSubject(SOURCE, BROKEN, FAILURE), line - 1, 0) is None


def test_a_remark_stands_at_its_expression_and_at_the_name():
    trace = replace(TRACE, remarks=(Remark("B becomes 8 here", MATMUL),))
    at_name = hover_name(F, trace, False, None).markdown
    assert f"*line {MATMUL.line}: B becomes 8 here*" in at_name
    hover = hover_expression(HoverSubject(SOURCE, F, trace), MATMUL.line, MATMUL.col + 2)
    assert text(hover) == snapshot("""\
```python
~f32[8, 4]
```

*`~`: a guessed size; nothing in the code fixes it*

*B becomes 8 here*\
""")


@pytest.mark.parametrize(
    ("code", "ahead", "shown"),
    [("x @ w", 2, "x @ w"), ("y.relu() + 1", 2, "y.relu()"), ("y.relu() + 1", 9, "y.relu() + 1"), ("w, n=4", 0, "w")],
)
def test_the_innermost_expression_that_is_known(code: str, ahead: int, shown: str):
    hover = hover_at(code, ahead)
    assert hover is not None and hover.span == replace(span(code), end_col=span(code).col + len(shown))
    assert ("\nbackward · " in hover.markdown) == (shown in ("x @ w", "y.relu()"))
    assert ("saves `relu`, ~128 B, for `where` in backward" in hover.markdown) == ("relu" in shown)


@pytest.mark.parametrize(("code", "shown"), [("x @ w", "x: ~f32[8, 128]"), ("n):", "n = 4")])
def test_a_parameter_in_the_body_is_what_was_passed(code: str, shown: str):
    assert f"\n{shown}\n" in (text(hover_at(code)) or "")


def test_nothing_is_known():
    assert hover_at("for _ in") is None
    assert hover_at("range") is None
    assert hover_expression(HoverSubject(SOURCE, F, TRACE, (FORWARD,)), 10_000, 10_000) is None
    assert hover_expression(HoverSubject("", F, TRACE, (FORWARD,)), 5, 4) is None


def test_long_lists_are_cut():
    matmul = next(n for n in FORWARD.nodes if n.name == "mm")
    many = Stage("forward", (matmul,) * 20)
    hover = hover_expression(HoverSubject(SOURCE, F, TRACE, (many,)), MATMUL.line, MATMUL.col + 2)
    assert hover is not None
    assert hover.markdown.count("aten.mm") == 12
    assert hover.markdown.endswith("and 8 more")


def test_a_parameter_says_which_calls_are_compiled_again():
    place = replace(span("w, n=4"), end_col=span("w, n=4").col + 1)
    again = Remark("torch.compile compiles the code again for another `w`", place, code="recompile")
    subject = HoverSubject(SOURCE, F, replace(TRACE, remarks=(again,)))
    hovers = [hover_expression(subject, place.line, place.col, HoverStyle(problems=told)) for told in (False, True)]
    assert [hover is not None and "compiles the code again" in hover.markdown for hover in hovers] == [True, False]


def test_the_name_of_what_builds_a_graph():
    graph = replace(FORWARD, name="graph")
    stages = (StageInfo("graph", 4, 6), StageInfo("table", 0, 0), StageInfo("code", 0, 0))
    trace = replace(TRACE, inputs=(), stages=stages, saved=(), notes=())
    hover = hover_name(
        replace(F, kind="graph"), trace, False, graph, HoverStyle(link=lambda name, stage: f"{name}.{stage}")
    )
    assert hover.markdown == snapshot("""\
```python
def forward() -> f32[8]
```

6 nodes

[show graph](f.graph) · [show table](f.table) · [show code](f.code)

```python
def graph(x: f32[8, 128], w: f32[128, 4]):
    # model.py:5
    mm: f32[8, 4] = aten.mm.default(x, w)
    # model.py:7
    relu: f32[8, 4] = aten.relu.default(mm)
    # model.py:8
    loss: "f32[]" = aten.sum.default(relu)  # keepdim
    return (loss, x, relu)
```

torch 2.13.0 · traced in 61 ms\
""")
