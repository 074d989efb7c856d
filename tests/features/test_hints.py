from dataclasses import replace

import pytest
from inline_snapshot import snapshot
from samples import BACKWARD, FILE, FORWARD, SOURCE, TRACE, F, function, span

from fx_lsp.features.hints import KINDS, HintKind, HintStyle, TracedTarget, hints
from fx_lsp.measured import BenchmarkRun, LineTime, Machine, Report
from fx_lsp.model import NamedSizes, Node, ObservedValue, Saved, Span, Stage, Trace


def annotated(source: str, *traced: TracedTarget, style: HintStyle | None = None) -> str:
    """The source as an editor shows it, hints in «»."""
    rows = source.encode().split(b"\n")
    for hint in reversed(hints(source, traced, 1, 10_000, style)):
        row = rows[hint.line - 1]
        pad = " " if hint.padded else ""
        rows[hint.line - 1] = row[: hint.col] + f"«{pad}{hint.label}»".encode() + row[hint.col :]
    return b"\n".join(rows).decode()


def trace(source: str, *values: tuple[str, str, str]) -> Trace:
    found = tuple(ObservedValue(span(code, source), name, spec) for code, name, spec in values)
    return Trace(f"{FILE}::g", (), (), (), found, (), 0.1, "2.13.0")


def test_assignments_and_returns():
    assert annotated(SOURCE, TracedTarget(F, TRACE)).splitlines()[3:8] == snapshot(
        [
            "def f(x, w, n=4):",
            "    y«: ~f32[8, 4]» = x @ w",
            "    for _ in range(n):",
            "        y«: ~f32[8, 4] (varies)» = y.relu() + 1« saves ~128 B for backward»",
            "    return y.sum(dim=-1)« -> ~f32[8]»",
        ]
    )


def test_the_tooltip_names_the_op():
    found = hints(SOURCE, [TracedTarget(F, TRACE, FORWARD)], 1, 100)
    assert [h.tooltip for h in found] == snapshot(
        [
            "from aten.mm.default · `~`: a guessed size; nothing in the code fixes it",
            "from aten.relu.default · `~`: a guessed size; nothing in the code fixes it",
            "relu: f32[8, 4] · `~`: a guessed size; nothing in the code fixes it",
            "`~`: a guessed size; nothing in the code fixes it",
        ]
    )


def test_only_the_lines_asked_for():
    assert {h.line for h in hints(SOURCE, [TracedTarget(F, TRACE)], 6, 7)} == {7}


def test_a_nested_definition_speaks_for_itself():
    source = "def g(x):\n    def h(y):\n        z = y\n    return h(x)\n"
    inner = function("h", "def h(y):\n        z = y", source)
    outer = function("g", source.strip(), source)
    of_outer, of_inner = (trace(source, ("z = y", "z", spec)) for spec in ("f32[1]", "f32[2]"))
    assert annotated(source, TracedTarget(outer, of_outer), TracedTarget(inner, of_inner)).splitlines()[2] == snapshot(
        "        z«: f32[2]» = y"
    )


def test_a_definition_that_no_longer_parses_has_no_hints():
    source = "def g(x):\n    y = (x\n"
    of_source = TracedTarget(function("g", source.strip("\n"), source), trace(source, ("y = (x", "y", "f32[2]")))
    assert annotated(source, of_source) == source


def head_of(name: str, source: str) -> Span:
    """The place of a function's head, where its parameters are recorded."""
    start = span(f"def {name}", source)
    return replace(start, end_line=start.line, end_col=start.col)


SEVERAL = """\
def g(self, x, y: Tensor, *, n: int = 4, m=2):
    B, T = x.shape
    k = 3
    for row in x:
        k += 1
    z = (
        x.view(B, self.n, self.n)
        .relu()
        .sum(dim=-1)
    )
    return z.softmax(0)
"""
HEAD = head_of("g", SEVERAL)
OF_SEVERAL = (
    ObservedValue(HEAD, "x", "f32[8, 16]"),
    ObservedValue(HEAD, "y", "f32[3]"),
    ObservedValue(HEAD, "n", "4"),
    ObservedValue(HEAD, "m", "5"),
    ObservedValue(span("B, T = x.shape", SEVERAL), "B", "8"),
    ObservedValue(span("B, T = x.shape", SEVERAL), "T", "16"),
    ObservedValue(span("k = 3", SEVERAL), "k", "3"),
    ObservedValue(span("row", SEVERAL), "row", "f32[16]"),
    ObservedValue(span("k += 1", SEVERAL), "k", "4", varies=True),
    ObservedValue(span("self.n", SEVERAL), "", "4"),
    ObservedValue(span("x.view(B, self.n, self.n)", SEVERAL), "", "f32[8, 4, 4]"),
    ObservedValue(span("relu()", SEVERAL), "", "f32[8, 4, 4](1, 8, 32)"),
    ObservedValue(
        span(SEVERAL[SEVERAL.index("z = (") : SEVERAL.index("    return")].rstrip(), SEVERAL), "z", "f32[8, 4]"
    ),
    ObservedValue(span("return z.softmax(0)", SEVERAL), "return", "f32[8, 4]"),
)


def several(*kinds: HintKind, strides: bool = False) -> str:
    named = (
        NamedSizes("value", span("relu()", SEVERAL), "", (8, 4, 4), ("B", "n", "n")),
        NamedSizes("value", OF_SEVERAL[-2].span, "z", (8, 4), ("B", "n")),
    )
    known = replace(trace(SEVERAL), values=OF_SEVERAL, named=named)
    target = function("g", SEVERAL.strip(), SEVERAL)
    return annotated(SEVERAL, TracedTarget(target, known), style=HintStyle("names", frozenset(kinds), strides))


def test_every_kind_of_hint_at_once():
    assert several(*KINDS) == snapshot("""\
def g(self, x«: f32[8, 16]», y: Tensor« f32[3]», *, n: int = 4, m«=5»=2):
    B«=8», T«=16» = x.shape
    k = 3
    for row«: f32[16]» in x:
        k += 1
    z«: f32[B, n]» = (
        x.view(B, self.n«=4», self.n)« f32[8, 4, 4]»
        .relu()« f32[B, n, n]»
        .sum(dim=-1«: n»)
    )
    return z.softmax(0«: B»)« -> f32[8, 4]»
""")


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_switched_on_its_own(kind: HintKind):
    alone, others = several(kind), several(*(k for k in KINDS if k != kind))
    assert alone.count("«") + others.count("«") == several(*KINDS).count("«")
    assert (alone == SEVERAL) == (kind in ("savedForBackward", "costs"))


def test_strides_are_shown_where_they_are_asked_for():
    assert several("chainedCalls", strides=True).splitlines()[6:8] == snapshot(
        ["        x.view(B, self.n, self.n)« f32[8, 4, 4]»", "        .relu()« f32[B, n, n](1, 8, 32)»"]
    )
    assert several("chainedCalls").splitlines()[7] == snapshot("        .relu()« f32[B, n, n]»")


def test_what_a_line_keeps_for_backward_and_who_reads_it():
    traced = TracedTarget(F, TRACE, FORWARD, BACKWARD)
    assert annotated(SOURCE, traced).splitlines()[6] == snapshot(
        "        y«: ~f32[8, 4] (varies)» = y.relu() + 1« saves ~128 B for backward of relu»"
    )
    unread = annotated(SOURCE, TracedTarget(F, TRACE, FORWARD)).splitlines()[6]
    assert unread.endswith("saves ~128 B for backward»")


def test_backward_that_only_looks_at_what_is_kept_is_followed_to_who_reads():
    view = Node("seen", "call_function", "aten.view.default", ("relu",), ("relu",), ("where",), "f32[32]")
    saved = tuple(replace(s, used_by=("seen",)) for s in TRACE.saved)
    traced = TracedTarget(F, replace(TRACE, saved=saved), FORWARD, Stage("backward", (view, *BACKWARD.nodes)))
    assert "for backward of relu»" in annotated(SOURCE, traced)


def test_little_that_is_kept_is_not_told():
    much = Saved("mm", "f32[99, 99]", 39_204, span("x @ w"), "activation")
    found = annotated(SOURCE, TracedTarget(F, replace(TRACE, saved=(*TRACE.saved, much)), FORWARD)).splitlines()
    assert [line for line in found if "saves" in line] == snapshot(
        ["    y«: ~f32[8, 4]» = x @ w« saves ~38.3 KiB for backward»"]
    )


def test_costs_of_lines_are_shown_on_request():
    traced = TracedTarget(F, TRACE, FORWARD, BACKWARD)
    assert annotated(SOURCE, traced, style=HintStyle(kinds=frozenset({"costs"}))).splitlines()[3:8] == snapshot(
        [
            "def f(x, w, n=4):",
            "    y = x @ w« █ 100% · 8.19 KFLOP · moves 6.1 KiB»",
            "    for _ in range(n):",
            "        y = y.relu() + 1« moves 256 B»",
            "    return y.sum(dim=-1)",
        ]
    )
    both = HintStyle(kinds=frozenset({"costs", "savedForBackward"}))
    assert annotated(SOURCE, traced, style=both).splitlines()[6] == snapshot(
        "        y = y.relu() + 1« moves 256 B · saves ~128 B for backward of relu»"
    )
    assert "FLOP" not in annotated(SOURCE, traced)


def test_measured_times_take_the_place_of_the_estimate():
    lines = (LineTime("", FILE, 5, 10.0, 50.0), LineTime("", FILE, 8, 15.0, 0.0), LineTime("", "", 0, 25.0, 0.0))
    report = Report("f", Machine(gpu="H200"), None, (), (), (), 0.0, 0.0, lines=lines)
    traced = TracedTarget(F, TRACE, FORWARD, BACKWARD, BenchmarkRun(FILE, "f", "h200", report))
    found = annotated(SOURCE, traced, style=HintStyle(kinds=frozenset({"costs"}))).splitlines()[3:8]
    assert found == snapshot(
        [
            "def f(x, w, n=4):",
            "    y = x @ w« ▅ 60% · 60 µs on H200 · 8.19 KFLOP · moves 6.1 KiB»",
            "    for _ in range(n):",
            "        y = y.relu() + 1",
            "    return y.sum(dim=-1)« ▁ 15% · 15 µs on H200»",
        ]
    )
