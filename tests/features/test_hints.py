from inline_snapshot import snapshot
from samples import FILE, FORWARD, SOURCE, TRACE, F, function, span

from fx_lsp.features.hints import TracedTarget, hints
from fx_lsp.model import ObservedValue, Outcome, Trace


def annotated(source: str, *traced: TracedTarget, lines: tuple[int, int] = (1, 10_000)) -> str:
    """The source as an editor shows it, hints in «»."""
    rows = source.encode().split(b"\n")
    for hint in reversed(hints(source, traced, *lines)):
        row = rows[hint.line - 1]
        pad = " " if hint.padded else ""
        rows[hint.line - 1] = row[: hint.col] + f"«{pad}{hint.label}»".encode() + row[hint.col :]
    return b"\n".join(rows).decode()


def trace(source: str, *values: tuple[str, str, str]) -> Trace:
    found = tuple(ObservedValue(span(code, source), name, spec) for code, name, spec in values)
    return Trace(f"{FILE}::g", (), (), (), found, (), 0.1, "2.13.0")


def shown(source: str, *values: tuple[str, str, str], name: str = "g") -> str:
    return annotated(source, TracedTarget(function(name, source.strip("\n"), source), trace(source, *values)))


def test_assignments_and_returns():
    assert annotated(SOURCE, TracedTarget(F, TRACE)).splitlines()[3:8] == snapshot(
        [
            "def f(x, w, n=4):",
            "    y«: ~f32[8, 4]» = x @ w",
            "    for _ in range(n):",
            "        y«: ~f32[8, 4] (varies)» = y.relu() + 1",
            "    return y.sum(dim=-1)« -> ~f32[8]»",
        ]
    )


def test_the_tooltip_names_the_op():
    found = hints(SOURCE, [TracedTarget(F, TRACE, FORWARD)], 1, 100)
    assert [h.tooltip for h in found] == snapshot(["from aten.mm.default", "from aten.relu.default", ""])


def test_only_the_lines_asked_for():
    assert [h.line for h in hints(SOURCE, [TracedTarget(F, TRACE)], 6, 7)] == [7]


def test_several_targets_of_one_statement():
    source = "def g(x):\n    a, (b, n) = h(x)\n"
    values = [("a, (b, n) = h(x)", name, spec) for name, spec in (("a", "f32[2]"), ("b", "i64[3]"), ("n", "4"))]
    assert shown(source, *values).splitlines()[1] == snapshot("    a«: f32[2]», (b«: i64[3]», n) = h(x)")


def test_annotated_names_chains_loops_and_with():
    source = """\
def g(x):
    a: Tensor = x
    b = c = x
    for d in x:
        with h(d) as e:
            if (k := e) is not None:
                pass
"""
    values = [
        ("a: Tensor = x", "a", "f32[1]"),
        ("b = c = x", "b", "f32[2]"),
        ("b = c = x", "c", "f32[2]"),
        (source[source.index("for") :].rstrip(), "d", "f32[3]"),
        (source[source.index("with") :].rstrip(), "e", "f32[4]"),
        (source[source.index("if") :].rstrip(), "k", "f32[5]"),
    ]
    assert shown(source, *values) == snapshot("""\
def g(x):
    a: Tensor« f32[1]» = x
    b«: f32[2]» = c«: f32[2]» = x
    for d«: f32[3]» in x:
        with h(d) as e«: f32[4]»:
            if (k«: f32[5]» := e) is not None:
                pass
""")


def test_a_return_named_by_its_expression():
    source = "def g(x):\n    return (\n        x + 1\n    )\n"
    assert shown(source, ("x + 1", "return", "f32[2]")).splitlines()[2] == snapshot("        x + 1« -> f32[2]»")


def test_columns_count_bytes():
    source = 'def g(x):\n    s = "🙂é"; größe = x\n'
    assert shown(source, ("größe = x", "größe", "f32[2]")).splitlines()[1] == snapshot(
        '    s = "🙂é"; größe«: f32[2]» = x'
    )


def test_a_nested_definition_speaks_for_itself():
    source = "def g(x):\n    def h(y):\n        z = y\n    return h(x)\n"
    inner = function("h", "def h(y):\n        z = y", source)
    outer = function("g", source.strip(), source)
    both = [
        TracedTarget(outer, trace(source, ("z = y", "z", "f32[1]"))),
        TracedTarget(inner, trace(source, ("z = y", "z", "f32[2]"))),
    ]
    assert annotated(source, *both).splitlines()[2] == snapshot("        z«: f32[2]» = y")


def test_a_definition_that_no_longer_parses_has_no_hints():
    source = "def g(x):\n    y = (x\n"
    assert shown(source, ("y = (x", "y", "f32[2]")) == source


def test_methods_are_found_inside_their_class():
    source = "class C:\n    def g(self, x):\n        y = x\n        return y\n"
    target = function("g", source[source.index("def") :].rstrip(), source)
    outcome: Outcome = trace(source, ("y = x", "y", "f32[2]"))
    assert annotated(source, TracedTarget(target, outcome)).splitlines()[2] == snapshot("        y«: f32[2]» = x")
