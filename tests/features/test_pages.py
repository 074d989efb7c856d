"""Each code of a problem has a page, which editors and SARIF link to, and each page has a code."""

import ast
import re
from pathlib import Path
from typing import get_args
from urllib.parse import urlparse
from urllib.request import url2pathname

import pytest

from fx_lsp.features.source.findings import _CODES, FINDINGS
from fx_lsp.features.wording.problems import page_of
from fx_lsp.model import FailureKind, FindingCode

PAGES = Path(__file__).parents[2] / "docs" / "problems"
CODES = sorted(_CODES - {"nothing"})  # targets that are not tensor code are not shown
OTHERS = [code for code in CODES if code not in FINDINGS]


def test_every_code_has_a_page_and_every_page_a_code() -> None:
    assert {*get_args(FailureKind), *get_args(FindingCode)} - {"nothing"} < set(CODES)
    assert sorted(page.stem for page in PAGES.glob("*.md") if page.stem != "README") == CODES


def test_the_tables_list_every_code() -> None:
    listed = re.findall(r"^\| \[`(.*?)`\]\(\1\.md\) \|", (PAGES / "README.md").read_text(encoding="utf-8"), re.M)
    assert listed == [*FINDINGS, *OTHERS]


@pytest.mark.parametrize("code", CODES)
def test_a_code_leads_to_its_page(code: str) -> None:
    page = page_of(code)
    assert page is not None
    text = Path(url2pathname(urlparse(page).path)).read_text(encoding="utf-8")
    assert text.startswith(f"# `{code}`: ")


def test_a_code_without_a_page() -> None:
    assert page_of("nothing") is None


@pytest.mark.parametrize("code", OTHERS)
def test_pages_of_failures_have_one_form(code: str) -> None:
    text = (PAGES / f"{code}.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", text, re.M) == ["Wrong", "Right", "Why", "Fix or silence"]
    assert "```text\n" in text, "the message"
    right = text.partition("\n## Right\n")[2].partition("\n## Why\n")[0]
    for example in re.findall(r"^```python\n(.*?)^```", right, re.M | re.S):
        ast.parse(example)
