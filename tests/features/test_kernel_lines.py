"""A file of kernels and what it is compiled to, without either: documents, and how their lines belong together."""

from inline_snapshot import snapshot

from fx_lsp.features import kernels
from fx_lsp.features.documents.document import Document, Line, render_stage
from fx_lsp.features.wording.uris import View
from fx_lsp.model import Node, Remark, Span, Stage, StageInfo, Trace

FILE = "/project/model.py"
SOURCE = ["def f(x):", "    y = x * 2", "    return y + 1"]
MUL, ADD = Span(FILE, 2, 8, 2, 13), Span(FILE, 3, 11, 3, 16)
KERNELS = Stage(
    "triton",
    (
        Node("y", "call_function", "aten.mul.Tensor", ("x", "2"), spec="f32[8]", spans=(MUL,)),
        Node("add", "call_function", "aten.add.Tensor", ("y", "1"), spec="f32[8]", spans=(ADD,)),
    ),
    "@triton.jit\ndef f_kernel(x_ptr, out_ptr):\n    y = tl.load(x_ptr) * 2\n    tl.store(out_ptr, y + 1)\n"
    "\ndef f(x):\n    launch(f_kernel, (1,), x, out)\n",
    (0, 0, 1, 2, 0, 0, 0),
)
PTX = Stage("ptx:f_kernel", text="// ptx of f_kernel\n\nld\nmul\nadd\nst\nret\n", origins=(2, 0, 3, 3, 4, 4, 0))
RESOURCES = Stage(
    "resources",
    text="f_kernel for cuda:90 (H100)\n8 registers · no spills\nline 3: 1 load of 32 bits for each thread\n",
    origins=(2, 2, 3),
)
KERNELS_VIEW = View(FILE, "f", "triton", work="triton")
PTX_VIEW = View(FILE, "f", "ptx", work="lowered&target=cuda:90")


def view() -> kernels.RenderedView:
    trace = Trace(f"{FILE}::f", (), (StageInfo("triton", 2, 2),), (), (), (), 0.1, "2.13")
    return kernels.RenderedView(render_stage(trace, KERNELS, line), {n.name: n for n in KERNELS.nodes})


def listing() -> Document:
    return kernels.render_listing([PTX], "f")


def line(span: Span) -> str | None:
    return SOURCE[span.line - 1] if span.file == FILE else None


def test_the_file_of_kernels_is_shown_as_it_is():
    assert view().document.text == KERNELS.text


def test_a_kernels_line_is_an_operation_at_a_place_and_what_it_was_compiled_to():
    found = kernels.hover_line(view(), 3, line, None, kernels.facts_at(RESOURCES, 3))
    assert found is not None
    assert found.markdown == snapshot("""\
```python
y: f32[8] = aten.mul.Tensor(x, 2)
```

model.py:2

```python
y = x * 2
```

- 1 load of 32 bits for each thread\
""")
    assert found.span == Span("", 3, 4, 3, 26)
    assert kernels.hover_line(view(), 1, line) is None


def test_a_line_of_a_listing_is_from_a_line_of_the_view():
    found = kernels.hover_line(kernels.RenderedView(listing()), 5, line, view())
    assert found is not None
    assert found.markdown == snapshot("""\
line 4 of the kernels

```python
tl.store(out_ptr, y + 1)
```

```python
add: f32[8] = aten.add.Tensor(y, 1)
```

model.py:3

```python
return y + 1
```\
""")
    assert kernels.hover_line(kernels.RenderedView(listing()), 7, line, view()) is None


def test_listings_of_several_kernels_stand_one_after_the_other():
    assert kernels.stages_of_listing("ptx", ["resources", "ttir:a", "ptx:a", "ttir:b", "ptx:b"]) == ["ptx:a", "ptx:b"]
    assert kernels.stages_of_listing("ptx:b", ["ptx:a", "ptx:b"]) == ["ptx:b"]
    both = kernels.render_listing([PTX, PTX], "f")
    assert both.text == f"{PTX.text}\n{PTX.text}"
    assert both.lines[8].spans == listing().lines[0].spans


def test_lines_from_the_same_belong_together():
    assert kernels.related_lines(listing(), 3) == [3, 4]
    assert kernels.related_lines(listing(), 7) == []
    known = view().document
    from_listing = kernels.thread_of_line(PTX_VIEW, listing(), 6, known)
    from_kernels = kernels.thread_of_line(KERNELS_VIEW, known, 4, known)
    from_source = kernels.thread_of_spans(kernels.spans_at(FILE, 3, 12, [known]), known)
    for thread in (from_listing, from_kernels, from_source):
        assert thread.spans == {ADD}
        assert kernels.lines_on(thread, PTX_VIEW, listing()) == [5, 6]
        assert kernels.lines_on(thread, KERNELS_VIEW, known) == [4]
    assert kernels.spans_at(FILE, 1, 0, [known]) == frozenset()


def test_a_place_belongs_to_what_it_called():
    """`call` on line 9 runs the addition: the addition belongs to both places, and another operation to its own."""
    call, outer = Span("other.py", 9, 8, 9, 20), Span("other.py", 9, 4, 9, 24)
    graph = Document((Line("# f"), Line("add", (ADD, call)), Line("mul", (outer,))))
    view = View(FILE, "f", "inference")
    assert kernels.lines_on(kernels.Thread(spans=kernels.spans_at(FILE, 3, 12, [graph])), view, graph) == [2]
    assert kernels.lines_on(kernels.Thread(spans=kernels.spans_at("other.py", 9, 10, [graph])), view, graph) == [2]
    assert kernels.lines_on(kernels.Thread(spans=kernels.spans_at("other.py", 9, 5, [graph])), view, graph) == [3]
    assert kernels.lines_on(kernels.Thread(spans=kernels.spans_at("other.py", 9, 0, [graph])), view, graph) == [2, 3]


def test_a_kernel_that_is_launched_has_lenses():
    shown = list(kernels.kernel_lenses("f", KERNELS.text, "cuda:90", RESOURCES, False))
    assert {lens.span.line for lens in shown} == {2}
    assert [(lens.title, lens.stage) for lens in shown] == snapshot(
        [
            ("cuda:90: 8 registers · no spills", "resources"),
            ("ttir", "ttir:f_kernel"),
            ("ttgir", "ttgir:f_kernel"),
            ("llir", "llir:f_kernel"),
            ("ptx", "ptx:f_kernel"),
            ("sass", "sass:f_kernel"),
        ]
    )
    first, *others = kernels.kernel_lenses("f", KERNELS.text, "hip:gfx942", None, True)
    assert first.title == "stale · compile for hip:gfx942"
    assert others[-1].stage == "amdgcn:f_kernel"


def test_remarks_about_the_kernels_are_problems_of_their_file():
    narrow = Remark("loads move 32 bits", Span("f.triton.py", 3, 4, 3, 26), "hint")
    elsewhere = Remark("B becomes 16 here", MUL)
    (problem,) = kernels.kernel_problems([elsewhere, narrow, narrow], "f")
    assert (problem.message, problem.severity, problem.span.line) == ("loads move 32 bits.", "hint", 3)


def test_a_remark_about_a_kernel_names_the_line_of_the_users_code_once():
    said = [Remark("aten.mul stays a call", Span("f.triton.py", n, 4, n, 9)) for n in (3, 3, 1)]
    elsewhere = Remark("B becomes 16 here", MUL)
    assert kernels.said_of_code(KERNELS, [*said, elsewhere], FILE, "f") == (
        f"{FILE}:2: aten.mul stays a call",
        f"{FILE}: aten.mul stays a call",
    )


def test_a_stage_that_is_asked_for_by_name_has_its_work():
    assert kernels.work_of("triton", "cuda:80") == "triton"
    assert kernels.work_of("ptx:f_kernel", "cuda:80") == "lowered&target=cuda:80"
    assert kernels.work_of("forward", "cuda:80") == ""


def test_the_choices_of_kernels_stay_with_what_they_are_compiled_to():
    assert kernels.work_of("ptx", "cuda:90", "triton&fuse=no") == "lowered&target=cuda:90&fuse=no"
    assert kernels.work_of("triton", "cuda:90", "lowered&target=cuda:80&fuse=no") == "triton&fuse=no"
    assert kernels.work_of("ptx", "cuda:90", "passes&check") == "lowered&target=cuda:90"
