"""Graphs beside each other: which nodes are in one row, and what differs from the first graph."""

from dataclasses import replace

from inline_snapshot import snapshot
from samples import graph_of, span

from fx_lsp.features.documents.comparison import align, columns_text
from fx_lsp.model import Stage

FIRST = graph_of(
    "forward",
    "x: f32[4]",
    "w: f32[4]",
    "a: f32[4] = aten.mul.Tensor(x, w)",
    "b: f32[4] = aten.clone.default(a)",
    "c: f32[4] = aten.add.Tensor(b, 1)",
    "return c",
)
WITHOUT_CLONE = graph_of(
    "forward:fold",
    "x: f32[4]",
    "w: f32[4]",
    "a: f32[4] = aten.mul.Tensor(x, w)",
    "c: f32[4] = aten.add.Tensor(a, 1)",
    "return c",
)
RENAMED = graph_of(
    "forward",
    "left: f32[8]",
    "right: f32[8]",
    "product: f32[8] = aten.mul.Tensor(left, right)",
    "copy: f32[8] = aten.clone.default(product)",
    "total: f32[8] = aten.add.Tensor(copy, 1)",
    "return total",
)


def shown(*stages: Stage, full: bool = True) -> str:
    return "\n".join(columns_text([stage.name for stage in stages], align(stages), full=full))


def test_three_graphs_are_in_step():
    gelu = graph_of("forward", "x: f32[4]", "g: f32[4] = aten.gelu.default(x)", "return g")
    assert shown(FIRST, WITHOUT_CLONE, gelu) == snapshot("""\
  forward                           │ forward:fold                      │ forward
  ───────────────────────────────── │ ───────────────────────────────── │ ────────────────────────────────
  x: f32[4]                         │ x: f32[4]                         │ x: f32[4]
≠ w: f32[4]                         │ w: f32[4]                         │
≠ a: f32[4] = aten.mul.Tensor(x, w) │ a: f32[4] = aten.mul.Tensor(x, w) │
≠ b: f32[4] = aten.clone.default(a) │                                   │
≠ c: f32[4] = aten.add.Tensor(b, 1) │ c: f32[4] = aten.add.Tensor(a, 1) │
≠                                   │                                   │ g: f32[4] = aten.gelu.default(x)
≠ return c                          │ return c                          │ return g\
""")


def test_nodes_of_other_names_are_one_row():
    assert shown(FIRST, RENAMED) == snapshot("""\
  forward                           │ forward
  ───────────────────────────────── │ ──────────────────────────────────────────────
≠ x: f32[4]                         │ left: f32[8]
≠ w: f32[4]                         │ right: f32[8]
≠ a: f32[4] = aten.mul.Tensor(x, w) │ product: f32[8] = aten.mul.Tensor(left, right)
≠ b: f32[4] = aten.clone.default(a) │ copy: f32[8] = aten.clone.default(product)
≠ c: f32[4] = aten.add.Tensor(b, 1) │ total: f32[8] = aten.add.Tensor(copy, 1)
  return c                          │ return total\
""")


def test_renamed_nodes_of_the_same_sizes_are_alike():
    same = Stage("forward", tuple(replace(n, spec=n.spec and n.spec.replace("8", "4")) for n in RENAMED.nodes))
    assert all(row.alike for row in align([FIRST, same]))


def test_a_swapped_argument_is_a_difference():
    swapped = Stage("forward", tuple(replace(n, args=("w", "x")) if n.name == "a" else n for n in FIRST.nodes))
    assert [row.nodes[0].name for row in align([FIRST, swapped]) if row.nodes[0] and not row.alike] == ["a"]


def test_a_graph_that_lacks_a_node_of_the_others_does_not_part_their_rows():
    rows = align([FIRST, WITHOUT_CLONE, FIRST])
    assert [[node and node.name for node in row.nodes] for row in rows] == snapshot(
        [
            ["x", "x", "x"],
            ["w", "w", "w"],
            ["a", "a", "a"],
            ["b", None, "b"],
            ["c", "c", "c"],
            ["output", "output", "output"],
        ]
    )


def test_equal_names_of_other_nodes_are_other_rows():
    """A graph that was traced again may reuse a name."""
    mul, exp = ((span("x @ w"),), (span("y.sum(dim=-1)"),))
    first = Stage("forward", tuple(replace(n, spans=mul) if n.name == "a" else n for n in FIRST.nodes))
    other = graph_of("forward", "x: f32[4]", "a: f32[4] = aten.exp.default(x)", "return a")
    other = Stage("forward", tuple(replace(n, spans=exp) if n.name == "a" else n for n in other.nodes))
    rows = align([first, other, first])
    assert [[node and node.target for node in row.nodes] for row in rows[2:5]] == snapshot(
        [
            ["aten.mul.Tensor", None, "aten.mul.Tensor"],
            ["aten.clone.default", None, "aten.clone.default"],
            ["aten.add.Tensor", None, "aten.add.Tensor"],
        ]
    )


def test_rows_that_are_alike_are_folded():
    many = graph_of("forward", "x: f32[4]", *(f"y{i}: f32[4] = aten.sin.default(x)" for i in range(20)), "return y19")
    end = replace(many.nodes[-1], args=("y3",))
    assert shown(many, Stage("other", (*many.nodes[:-1], end)), full=False) == snapshot("""\
  forward                           │ other
  ───────────────────────────────── │ ─────────────────────────────────
  # 18 rows alike
  y17: f32[4] = aten.sin.default(x) │ y17: f32[4] = aten.sin.default(x)
  y18: f32[4] = aten.sin.default(x) │ y18: f32[4] = aten.sin.default(x)
  y19: f32[4] = aten.sin.default(x) │ y19: f32[4] = aten.sin.default(x)
≠ return y19                        │ return y3\
""")


def test_no_difference():
    assert shown(FIRST, FIRST, full=False) == snapshot("""\
  forward                           │ forward
  ───────────────────────────────── │ ─────────────────────────────────
  # 6 rows alike
  # no difference\
""")
