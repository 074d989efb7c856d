"""Find the pages that explain codes of problems: `docs/problems/` of a checkout, or the copy in the installed
package.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import fx_lsp
from fx_lsp import files

_PACKAGE = Path(fx_lsp.__file__).parent
FOLDERS = _PACKAGE / "problems", _PACKAGE.parent / "docs" / "problems"


@cache
def page_of(code: str) -> str | None:
    """Return the URI of the page on a code, None if it has none."""
    page = _file_of(code)
    return None if page is None else page.as_uri()


@cache
def text_of_page(code: str) -> str | None:
    """Return the Markdown text of the page on a code, None if it has none."""
    page = _file_of(code)
    return None if page is None else files.read_text(page)


def _file_of(code: str) -> Path | None:
    return next((page for folder in FOLDERS if (page := folder / f"{code}.md").is_file()), None)
