"""Values in a graph's document: the place under the caret, and what it leads to."""

from dataclasses import replace

from inline_snapshot import snapshot
from samples import BACKWARD, FORWARD, SOURCE, TRACE

from fx_lsp.features import values
from fx_lsp.features.documents.document import render_stage
from fx_lsp.features.kernels import RenderedView
from fx_lsp.model import Span, Stage


def shown(stage: Stage = FORWARD) -> RenderedView:
    document = render_stage(TRACE, stage, lambda span: SOURCE.splitlines()[span.line - 1])
    return RenderedView(document, {node.name: node for node in stage.nodes})


def underlined(view: RenderedView, spans: list[Span]) -> str:
    """The lines of these spans, each with carets under it."""
    rows = []
    for span in spans:
        text = view.document.lines[span.line - 1].text
        rows += [text, f"{' ' * span.col}{'^' * (span.end_col - span.col)}"]
    return "\n".join(rows)


def at(view: RenderedView, text: str, inner: str) -> str | None:
    number, line = next((n, row.text) for n, row in enumerate(view.document.lines, 1) if text in row.text)
    mention = values.mention_at(view, number, line.index(text) + text.index(inner))
    return None if mention is None else mention.name


def test_the_caret_is_on_a_value_or_on_the_line_that_computes_one():
    view = shown()
    assert at(view, "aten.mm.default(x, w)", "w") == "w"
    assert at(view, "aten.mm.default(x, w)", "mm.") == "mm"
    assert at(view, "aten.relu.default(mm)", "aten") == "relu"
    assert at(view, "# model.py:5", "model") is None


def test_where_a_value_is_computed():
    view = shown()
    assert underlined(view, [values.definition_of(view, "relu")]) == snapshot("""\
    relu: f32[8, 4] = aten.relu.default(mm)  # saved for backward, 128 B
    ^^^^\
""")


def test_where_a_value_is_named():
    view = shown()
    assert underlined(view, [mention.span for mention in values.mentions_of(view, "x")]) == snapshot("""\
    x: f32[8, 128],  # saved for backward, 4 KiB
    ^
    mm: f32[8, 4] = aten.mm.default(x, w)
                                    ^
    return (loss, x, relu)
                  ^\
""")


def test_a_dimension_with_the_name_of_a_value_is_not_the_value():
    nodes = (replace(node, spec="f32[x, 4]") if node.name == "mm" else node for node in FORWARD.nodes)
    view = shown(Stage("forward", tuple(nodes)))
    second = values.mentions_of(view, "x")[1]
    assert underlined(view, [second.span]) == snapshot("""\
    mm: f32[x, 4] = aten.mm.default(x, w)
                                    ^\
""")


def test_the_outline_has_the_lines_of_the_code():
    assert [*_rows(values.outline(shown(BACKWARD)))] == snapshot(
        [
            "backward",
            "  inputs",
            "    relu f32[8, 4]",
            "  model.py:7  y = y.relu() + 1",
            "    where f32[8, 4]",
            "  model.py:5  y = x @ w",
            "    grad_w f32[128, 4]",
        ]
    )


def test_functions_and_lines_of_the_code_fold():
    lines = [line.text for line in shown().document.lines]
    assert [(lines[first - 1], lines[last - 1], comment) for first, last, comment in values.folds(lines)] == snapshot(
        [
            (
                "# model.py::f · forward graph · 3 ops",
                "# note: the whole module was imported, because `x` is global",
                True,
            ),
            ("def forward(", "    return (loss, x, relu)", False),
            ("    # model.py:5  y = x @ w", "    mm: f32[8, 4] = aten.mm.default(x, w)", False),
            (
                "    # model.py:7  y = y.relu() + 1",
                "    relu: f32[8, 4] = aten.relu.default(mm)  # saved for backward, 128 B",
                False,
            ),
            ("    # model.py:8  return y.sum(dim=-1)", "    return (loss, x, relu)", False),
        ]
    )


def test_tokens_say_what_the_parts_of_a_line_are():
    view = shown()
    parts = [(view.document.lines[t.line - 1].text[t.col : t.end_col], t.kind) for t in values.tokens(view)]
    assert parts[-9:] == snapshot(
        [
            ("# model.py:8  return y.sum(dim=-1)", "comment"),
            ("loss", "variable"),
            ('"f32[]"', "type"),
            ("aten.sum.default", "function"),
            ("relu", "variable"),
            ("# keepdim", "comment"),
            ("loss", "variable"),
            ("x", "parameter"),
            ("relu", "variable"),
        ]
    )


def test_who_reads_a_value():
    users = {"x": ("mm", "output"), "mm": ("relu",)}
    nodes = {node.name: replace(node, users=users.get(node.name, ())) for node in FORWARD.nodes}
    view = RenderedView(shown().document, nodes)
    assert values.value_facts(view, "x") == ["read by mm, the results"]
    assert values.value_facts(view, "relu") == []


def _rows(symbols: tuple[values.Symbol, ...], depth: int = 0):
    for symbol in symbols:
        yield f"{'  ' * depth}{symbol.name} {symbol.detail}".rstrip()
        yield from _rows(symbol.children, depth + 1)
