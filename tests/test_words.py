"""Messages, pages, docstrings and comments use the words of docs/contributing/words.md.

`python tests/test_words.py` prints every phrase that they should not use.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
GLOSSARY = ROOT / "docs" / "contributing" / "words.md"
PAGES = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/**/*.md",
    "editors/nvim/doc/*.txt",
    "vscode-extension/README.md",
    "vscode-extension/package.json",
)
HOLE = "{}"
"""Represents the values in the text of an f-string."""


class Text(NamedTuple):
    """A piece of text of a file, from a line on. `spans_lines` says whether its line breaks are those of the file."""

    path: Path
    line: int
    text: str
    spans_lines: bool = True


def test_messages_use_the_words() -> None:
    hits = misused(text for file in modules() for text in messages(file))
    assert not hits, "\n".join(hits)


def test_docstrings_and_comments_use_the_words() -> None:
    hits = misused(text for file in modules() for text in (*docstrings(file), *comments(file)))
    assert not hits, "\n".join(hits)


def test_pages_use_the_words() -> None:
    hits = misused(pages())
    assert not hits, "\n".join(hits)


def test_the_glossary_has_rows() -> None:
    rows = table_rows(GLOSSARY.read_text(encoding="utf-8"))
    assert len(rows) >= 40
    written = [word for words, _ in rows for word in words]
    assert sorted({word for word in written if written.count(word) > 1}) == []
    assert [word for word in written if pattern().search(word)] == []


@pytest.mark.parametrize(
    "phrase, text",
    [
        ("stand(s) for", "None stands for anything"),
        ("stand(s) for", "names that stand\n    for sizes"),
        ("keep(s) … for backward", "keeps {} for backward of gelu"),
        ("mend(s)", "Mend its installation"),
    ],
)
def test_a_phrase_matches(phrase: str, text: str) -> None:
    assert re.search(rf"\b{expression(phrase)}\b", text)


@pytest.mark.parametrize(
    "phrase, text",
    [
        ("stand(s) for", "the standard format"),
        ("mend(s)", "as recommended"),
        ("stands at", "the state stands apart"),
        ("keep(s) … for backward", "it keeps the file. Operators for backward"),
    ],
)
def test_a_phrase_does_not_match(phrase: str, text: str) -> None:
    assert not re.search(rf"\b{expression(phrase)}\b", text)


def test_texts_of_a_module_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        '"""A docstring."""\n'
        "SIZE = 4  # is a comment\n"
        '"""Another."""\n'
        "def f(x):\n"
        "    raise ValueError(f'is a {x!r:>{SIZE}}' ' message')\n"
    )
    assert [(text.line, text.text) for text in messages(file)] == [(5, "is a {} message")]
    assert [(text.line, text.text) for text in docstrings(file)] == [(1, "A docstring."), (3, "Another.")]
    assert [(text.line, text.text) for text in comments(file)] == [(2, "is a comment")]


def misused(texts: Iterable[Text]) -> list[str]:
    """Return a line for each phrase of the glossary's column `not` in the texts."""
    return [
        f"{text.path.relative_to(ROOT).as_posix()}:{line}: {' '.join(match[0].split())}"
        for text in texts
        for match in pattern().finditer(text.text)
        for line in [text.line + text.text.count("\n", 0, match.start()) * text.spans_lines]
    ]


@cache
def pattern() -> re.Pattern[str]:
    """Return what finds the phrases of the column `not`, the longest first."""
    rows = table_rows(GLOSSARY.read_text(encoding="utf-8"))
    phrases = sorted({phrase for _, phrases in rows for phrase in phrases}, key=len, reverse=True)
    return re.compile(rf"\b(?:{'|'.join(map(expression, phrases))})\b")


def table_rows(page: str) -> list[tuple[list[str], list[str]]]:
    """Return the cells `write` and `not` of each row of the tables, split at commas."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    named = [row[:2] for row in rows if row[0] != "write" and row[0].strip("-")]
    return [(words(write), words(avoid)) for write, avoid in named]


def words(cell: str) -> list[str]:
    return [word.strip() for word in cell.split(",") if word.strip()]


def expression(phrase: str) -> str:
    """Return a regular expression for a phrase, whose first letter may be a capital.

    Words are apart by any space, `(s)` is an optional ending, and `…` is one to five words of one sentence.
    """
    parts = [re.escape(word).replace(r"\(s\)", "s?") for word in phrase.split()]
    parts[0] = f"[{phrase[0]}{phrase[0].upper()}]{parts[0][1:]}"
    return r"\s+".join(r"(?:[^\s.]+\s+){0,4}?[^\s.]+" if part == "…" else part for part in parts)


def pages() -> Iterator[Text]:
    """Yield the pages, all but the glossary itself."""
    for file in (file for name in PAGES for file in sorted(ROOT.glob(name)) if file != GLOSSARY):
        yield Text(file, 1, file.read_text(encoding="utf-8"))


def modules() -> list[Path]:
    return sorted((ROOT / "fx_lsp").rglob("*.py"))


def messages(file: Path) -> Iterator[Text]:
    """Yield the string literals of a module that are no docstrings; those within the values of an f-string as well."""
    skipped: set[int] = set()
    for node in ast.walk(parsed(file)):  # a node comes before what is in it
        if isinstance(node, ast.Expr):
            skipped.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            skipped.update(id(part) for part in node.values if isinstance(part, ast.Constant))
            skipped.update(id(part.format_spec) for part in node.values if isinstance(part, ast.FormattedValue))
            parts = [str(part.value) if isinstance(part, ast.Constant) else HOLE for part in node.values]
            if id(node) not in skipped:
                yield Text(file, node.lineno, "".join(parts), spans_lines=False)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield Text(file, node.lineno, node.value, spans_lines=False)


def docstrings(file: Path) -> Iterator[Text]:
    """Yield the strings that are statements: docstrings, those of attributes among them."""
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield Text(file, node.lineno, node.value.value)


def comments(file: Path) -> Iterator[Text]:
    """Yield the comments, those on lines of their own below each other as one."""
    source = file.read_text(encoding="utf-8")
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    found = [token for token in tokens if token.type == tokenize.COMMENT]
    alone = {token.start[0]: token.line.lstrip().startswith("#") for token in found}
    block = 0
    blocks: dict[int, list[str]] = {}
    for token in found:
        line = token.start[0]
        if not (alone[line] and alone.get(line - 1)):
            block = line
        blocks.setdefault(block, []).append(token.string.lstrip("# "))
    for line, lines in blocks.items():
        yield Text(file, line, "\n".join(lines))


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


if __name__ == "__main__":
    for file in modules():
        print(*misused(messages(file)), *misused((*docstrings(file), *comments(file))), sep="\n")
    print(*misused(pages()), sep="\n")
