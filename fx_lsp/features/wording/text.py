"""Format words and numbers for people. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath, PureWindowsPath

from fx_lsp.model import Span

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")
_TENSOR = re.compile(r"\b(?:bf|[biufc])\d+\w*\[")


def format_bytes(size: int) -> str:
    """Return a number of bytes in binary units: `512 B`, `4.1 KiB`, `32 KiB`, `1.5 GiB`."""
    if size < 1024:
        return f"{size} B"
    value, power = size / 1024, 0
    while value >= 1023.95 and power < len(_UNITS) - 1:
        value, power = value / 1024, power + 1
    return f"{value:.1f}".removesuffix(".0") + f" {_UNITS[power]}"


def count(noun: str, number: int, plural: str = "") -> str:
    """Return `1 op`, `12 ops`, `1,024 ops`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def basename(path: str) -> str:
    """Return the last part of a path of either kind of system."""
    return PureWindowsPath(path).name if "\\" in path else PurePosixPath(path).name


def one_line(text: str, limit: int = 120) -> str:
    """Return `text` with its white space collapsed, cut at `limit` characters with an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def span_text(lines: Sequence[str], span: Span, joint: str = "\n") -> str:
    """Return the text of a span in the lines of its file, of which some may be gone."""
    rows = [line.encode("utf-8", "surrogatepass") for line in lines[span.line - 1 : span.end_line]]
    if rows:
        rows[-1] = rows[-1][: span.end_col]
        rows[0] = rows[0][span.col :]
    return joint.join(row.decode("utf-8", "replace") for row in rows)


def is_tensor_spec(spec: str) -> bool:
    """Return whether a spec describes tensors (`f32[8, 128]`, `(f32[2], None)`), not the repr of another value."""
    return not spec.lstrip().startswith(("'", '"')) and _TENSOR.search(spec) is not None


def sentence(text: str) -> str:
    """Return `text` stripped, ending in a full stop unless it already ends a sentence."""
    text = text.strip()
    return text if not text or text.endswith((".", "!", "?", "…")) else text + "."


def code(text: str) -> str:
    """Return `text` as an inline Markdown code span, also if it contains backticks."""
    text = one_line(text, 400)
    fence = "`"
    while fence in text:
        fence += "`"
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


_CODE = re.compile(r"(`[^`]*`)")
_SPECIAL = re.compile(r"[*<]|__|(?<=\])\(")


def plain(text: str) -> str:
    """Return `text` escaped so that Markdown shows it literally, except for `code` in backticks.

    Only characters that would change its look are escaped: not every client hides the backslashes.
    """
    parts = _CODE.split(text)
    parts[::2] = [_SPECIAL.sub(lambda match: "".join(f"\\{c}" for c in match.group()), part) for part in parts[::2]]
    return "".join(parts)
