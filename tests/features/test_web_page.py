"""A target as one HTML file: what a reader sees, and which lines belong together."""

from dataclasses import replace
from html.parser import HTMLParser

from inline_snapshot import snapshot
from samples import BACKWARD, FORWARD, SOURCE, TRACE, F

from fx_lsp.features.web_page import web_page


class Lines(HTMLParser):
    """Collects the lines of each <pre>: the text, and the places in the code that it comes from."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.panes: list[list[tuple[str, str]]] = []
        self.tags: list[str] = []
        self.inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "pre":
            self.panes.append([])
            self.inside = True
        elif tag == "span" and self.panes:
            self.panes[-1].append(("", dict(attrs).get("data-of") or ""))

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag != "pre"

    def handle_data(self, data: str) -> None:
        if self.inside and self.panes[-1]:
            text, of = self.panes[-1][-1]
            self.panes[-1][-1] = (f"{text} {data}".strip(), of)


def page_of(source: str = SOURCE, trace=TRACE) -> str:
    return web_page(F, trace, (FORWARD, BACKWARD), lambda file: source.splitlines(), "numbers")


def test_the_source_has_the_cost_of_each_line():
    source, *_ = Lines(page_of()).panes
    assert [text for text, _ in source] == snapshot(
        [
            "4 def f(x, w, n=4):",
            "5     y = x @ w 1 op · 1 backward · 8.19 KFLOP · moves 6.1 KiB",
            "6     for _ in range(n):",
            "7         y = y.relu() + 1 1 op · 1 backward · moves 256 B · saves 128 B",
            "8     return y.sum(dim=-1) 1 op",
        ]
    )


def test_lines_of_graphs_belong_to_the_lines_of_the_code():
    source, forward, backward = Lines(page_of()).panes
    (of,) = {of for text, of in source if "y = x @ w" in text}
    assert [text.strip() for text, places in forward if of in places.split()] == snapshot(
        ["# model.py:5  y = x @ w", "mm: f32[8, 4] = aten.mm.default(x, w)"]
    )
    assert [text.strip() for text, places in backward if of in places.split()] == snapshot(
        ["# model.py:5  y = x @ w", "grad_w: f32[128, 4] = aten.mm.default(x, where)"]
    )


def test_the_page_needs_nothing_from_outside():
    page = page_of()
    assert "src=" not in page and "href=" not in page and "url(" not in page
    assert Lines(page).tags.count("script") == 1


def test_code_cannot_end_the_page():
    hostile = SOURCE.replace("y = x @ w", "y = x @ w  # </pre></script><script>alert(1)</script>")
    page = page_of(hostile, replace(TRACE, notes=("<img onerror=alert(1)>",)))
    assert Lines(page).tags.count("script") == 1
    assert "img" not in Lines(page).tags


def test_a_file_that_cannot_be_read_has_graphs():
    page = web_page(F, TRACE, (FORWARD, BACKWARD), lambda file: [], "numbers")
    source, forward, _ = Lines(page).panes
    assert not source
    assert any("aten.mm.default" in text for text, _ in forward)
