"""What the name and the document of a target that fails say; `tests/shown/cases/partial.py` has what its lines say."""

from dataclasses import replace

from inline_snapshot import snapshot
from samples import FAILURE, FILE, function, graph_of, span

from fx_lsp.features.documents.document import render_stage
from fx_lsp.features.hints import TracedTarget, hints
from fx_lsp.features.hover import HoverStyle, hover_name
from fx_lsp.features.lenses import lenses
from fx_lsp.features.wording.traces import shown_trace
from fx_lsp.model import ObservedValue, StageInfo, Trace

SOURCE = """\
import torch


def g(x):
    y = x.sin()
    z = y @ y
    return z.cos()
"""
G = function("g", SOURCE[SOURCE.index("def g") :].rstrip("\n"), SOURCE)
RAN = graph_of("torch", "x: f32[8, 128]", "y: f32[8, 128] = aten.sin.default(x)")
PARTIAL = Trace(
    f"{FILE}::g",
    FAILURE.inputs,
    (StageInfo("torch", 1, 3, "as written, up to the failure"),),
    (),
    (ObservedValue(span("y = x.sin()", SOURCE), "y", "f32[8, 128]"),),
    (),
    0.0,
    "2.13.0",
)
BROKEN = replace(FAILURE, span=span("y @ y", SOURCE), partial=PARTIAL)


def test_its_lenses_and_hints_say_how_far_it_ran():
    assert [(lens.title, lens.action, lens.stage) for lens in lenses(G, BROKEN, stale=False)] == [
        ("not traced: line 6", "show failure", ""),
        ("show partial graph", "show stage", "torch"),
    ]
    (hint,) = hints(SOURCE, [TracedTarget(G, BROKEN, RAN)], 1, 100)
    assert (hint.line, hint.label, hint.tooltip) == snapshot(
        (
            5,
            ": ~f32[8, 128]",
            "partial: up to line 6, where it fails · `~`: a guessed size; nothing in the code fixes it",
        )
    )


def test_the_name_has_the_failure_and_what_ran():
    style = HoverStyle(link=lambda name, stage: f"command:{name}/{stage}")
    assert hover_name(G, BROKEN, False, RAN, style).markdown.partition("fixes it*\n\n")[2] == snapshot("""\
**Partial**: 1 op ran, up to line 6, where it fails · [show partial graph](command:g/torch)

```python
def torch(x: f32[8, 128]):
    y: f32[8, 128] = aten.sin.default(x)
```\
""")


def test_the_document_says_how_far_it_goes():
    known = shown_trace(BROKEN, FILE)
    assert known is not None
    assert render_stage(known, RAN, lambda span: None).text.partition("\ndef")[0] == snapshot("""\
# model.py::g · torch graph · 1 op
# torch 2.13.0 · as written, up to the failure
#   x: ~f32[8, 128]   (search)
# note: partial: up to line 6, where it fails: matmul of f32[8, 128] and f32[8, 128]: 128 and 8 differ
""")
