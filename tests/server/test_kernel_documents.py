"""A file of kernels in an editor, and the forms that it is compiled to."""

from pathlib import Path

import pytest
from inline_snapshot import snapshot
from lsprotocol import types
from sessions import REAL, Editor, editor
from warm import warm_python

pytest.importorskip("triton")
pytestmark = pytest.mark.torch

TEXT = """\
import torch


# fx: x=f32[64, 256]
def soft(x):
    return torch.softmax(x, -1) * 2
"""


def line_of(text: str, part: str) -> int:
    """The number, from 0, of the first line that has `part`."""
    return next(n for n, line in enumerate(text.splitlines()) if part in line)


def session(folder: Path):
    options = {"cache.path": str(folder / "cache.db"), "interpreter": warm_python()}
    return editor(folder, options=options, command=REAL)


async def open_view(ed: Editor, source: str, stage: str) -> tuple[str, str]:
    """The URI and the text of a stage that the client opens."""
    uri = (await ed.command("fxLsp.showStage", source, "soft", stage))["uri"]
    text = await ed.document(uri)
    ed.open("", text, uri=uri)
    return uri, text


async def test_a_line_of_ptx_leads_to_the_kernel_and_that_to_the_source(tmp_path: Path):
    async with session(tmp_path) as ed:
        source = ed.open("m.py", TEXT)
        kernels, text = await open_view(ed, source, "triton")
        assert kernels == f"{source.replace('file://', 'fx-lsp:')}/soft.triton.py?triton"
        assert text.startswith('"""soft as Triton kernels')
        store = line_of(text, "tl.store(")
        assert await ed.hover(kernels, store, 6) == snapshot("""\
```python
amax: f32[x_0, 1] = aten.amax.default(x, [-1], True)
```

m.py:6

```python
return torch.softmax(x, -1) * 2
```\
""")
        assert await ed.hover(kernels, line_of(text, "import torch"), 0) is None
        (place,) = await definition(ed, kernels, store)
        assert (place.uri, place.range) == (source, types.Range(types.Position(5, 11), types.Position(5, 31)))
        first, *others = await ed.titles(kernels)
        assert first.startswith("save as a file · ")
        assert others == snapshot(
            [
                "benchmark",
                "compile for cuda:90",
                "ttir",
                "ttgir",
                "llir",
                "ptx",
                "sass",
                "compile for cuda:90",
                "ttir",
                "ttgir",
                "llir",
                "ptx",
                "sass",
            ]
        )

        ptx, listing = await open_view(ed, source, "ptx")
        assert ptx.endswith("/soft.ptx.txt?lowered&target=cuda:90")
        instruction = line_of(listing, "st.global")
        origin, _, rest = ((await ed.hover(ptx, instruction, 1)) or "").partition("\n\n")
        assert origin == f"line {store + 1} of the kernels"
        assert rest == snapshot("""\
```python
tl.store(amax_ptr + rows, amax, mask=rows_mask)
```

```python
amax: f32[x_0, 1] = aten.amax.default(x, [-1], True)
```

m.py:6

```python
return torch.softmax(x, -1) * 2
```\
""")
        (place,) = await definition(ed, ptx, instruction)
        assert (place.uri, place.range.start.line) == (kernels, store)
        document = types.TextDocumentIdentifier(uri=ptx)
        found = await ed.client.text_document_document_highlight_async(
            types.DocumentHighlightParams(text_document=document, position=types.Position(instruction, 0))
        )
        rows = [listing.splitlines()[h.range.start.line] for h in found or []]
        assert rows[0].startswith("// line ")
        assert all("ld.global" not in row for row in rows)

        place = {"uri": source, "position": {"line": 5, "character": 15}}
        together = await ed.client.protocol.send_request_async("fxLsp/related", place)
        assert {item["uri"] for item in together} == {kernels, ptx, source}
        assert instruction in {r["start"]["line"] for item in together if item["uri"] == ptx for r in item["ranges"]}

        definition_line = line_of(text, "def soft_")
        assert await ed.hover(kernels, definition_line, 6) == snapshot("""\
- soft_forward_kernel for cuda:90 (H100)
- 40 registers · no spills · 32 bytes of shared memory · 64 threads
- 24 blocks on a multiprocessor: 75% of its warps, limited by registers\
""")
        assert await ed.hover(kernels, store, 6) == snapshot("""\
```python
amax: f32[x_0, 1] = aten.amax.default(x, [-1], True)
```

m.py:6

```python
return torch.softmax(x, -1) * 2
```

- 1 store of 32 bits for each thread\
""")


async def test_narrow_loads_are_problems_of_the_kernels_and_an_edit_makes_them_anew(tmp_path: Path):
    async with session(tmp_path) as ed:
        source = ed.open("m.py", TEXT.replace("256", "8193"))
        kernels, text = await open_view(ed, source, "triton")
        await open_view(ed, kernels, "ptx")
        problems = await ed.until(lambda: ed.client.diagnostics.get(kernels))
        assert {text.splitlines()[p.range.start.line].strip().split("(")[0] for p in problems} == snapshot(
            {"grad_out = tl.load", "tl.store", "x = tl.load"}
        )
        assert {p.source for p in problems} == {"fx-lsp"}

        ed.refreshed.clear()
        ed.change(source, 2, TEXT.replace("* 2", "* 3"))
        await ed.until(lambda: kernels in ed.refreshed)
        assert "* 3.0" in await ed.document(kernels)
        await ed.until(lambda: not ed.client.diagnostics[kernels])


async def test_what_stays_a_call_is_a_problem_at_the_call(tmp_path: Path):
    async with session(tmp_path) as ed:
        source = ed.open("m.py", TEXT.replace("torch.softmax(x, -1)", "torch.sort(x)[0]"))
        kernels, text = await open_view(ed, source, "triton")
        problem, *_ = await ed.until(lambda: ed.client.diagnostics.get(kernels))
        assert text.splitlines()[problem.range.start.line].strip() == "sort = torch.ops.aten.sort.default(x)"
        assert problem.message == "aten.sort falls back to PyTorch: there is no kernel that sorts."
        assert problem.severity == types.DiagnosticSeverity.Information


async def definition(ed: Editor, uri: str, line: int) -> list[types.Location]:
    position = types.Position(line, 6)
    params = types.DefinitionParams(text_document=types.TextDocumentIdentifier(uri=uri), position=position)
    return list(await ed.client.text_document_definition_async(params) or [])  # type: ignore[arg-type]
