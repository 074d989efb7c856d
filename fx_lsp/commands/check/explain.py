"""`fx-lsp explain CODE`: prints the page on a problem code."""

from __future__ import annotations

import argparse
from difflib import get_close_matches

from fx_lsp.errors import UsageError
from fx_lsp.features.wording.problems import codes_with_pages, text_of_page


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fx-lsp explain`."""
    parser.add_argument("code", metavar="CODE", help="the code of a problem, as in shape or graph-break")


def run(arguments: argparse.Namespace) -> int:
    """Print the page on a code, in Markdown. Raises UsageError for a code without a page."""
    page = text_of_page(arguments.code)
    if page is None:
        code, codes = str(arguments.code), codes_with_pages()
        listed = ", ".join(get_close_matches(code, codes) or codes)
        raise UsageError(f"`{code}` is not the code of a problem; choose one of {listed}")
    print(page, end="")
    return 0
