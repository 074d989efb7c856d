"""The data on kernels that are not fused, and the page with the kernel of each line."""

from fx_lsp import wire
from fx_lsp.features.documents.document import text_lines
from fx_lsp.features.kernels import fusion_data
from fx_lsp.model import Node, Span, Stage
from fx_lsp.tracing.answers.relocation import relocate_stage

PLACE = Span("/m.py", 6, 4, 6, 9)
NODES = (Node("y", "call_function", "aten.sin.default", ("x",), spans=(PLACE,)), Node("size", "call_function", "f"))
PAGE = Stage("fusion", NODES, "# 1. kernel f_kernel\n#     m.py:6  y = aten.sin.default(x)\n", (0, 1), (1, 1))


def test_operations_have_the_places_of_their_nodes():
    text = '{"fx-lsp": {"notes": [], "graphs": [{"kernels": [{"operations": [0, 1]}]}]}}'
    (graph,) = fusion_data(Stage("fusion:json", NODES, text))["fx-lsp"]["graphs"]
    assert graph["kernels"][0]["operations"] == [
        {"name": "y", "target": "aten.sin.default", "file": "/m.py", "line": 6},
        {"name": "size", "target": "f", "file": None, "line": None},
    ]


def test_each_line_of_a_page_has_its_kernel():
    received = wire.decode_stage(wire.encode_stage(PAGE))
    assert [(line.kernel, line.spans) for line in text_lines(received)] == [(1, ()), (1, (PLACE,))]


def test_the_places_of_a_page_follow_an_edit_above_them():
    moved = relocate_stage(PAGE, "/m.py", {6: 8})
    assert moved.text.splitlines()[1] == "#     m.py:8  y = aten.sin.default(x)"
