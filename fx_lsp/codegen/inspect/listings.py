"""The readable texts of a compiled kernel, with the line of the Python file for each of their lines.

Compilers write source positions in seven formats. Each function here takes a text as its compiler wrote it and the
`path` of the Python file. It returns the text without debug information, and for each of its lines a line of that file,
0 for none. For inlined functions this is the innermost position in that file: a call of `tl.sum` is from the line that
calls it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath


@dataclass(frozen=True)
class Listing:
    """A text and, for each of its lines, a line of the Python file or 0."""

    text: str
    lines: tuple[int, ...]


def mlir(text: str, path: str) -> Listing:
    """Return TTIR and TTGIR. Positions are `loc(…)` after each operation, with aliases around the module."""
    definitions = dict(_LOC_ALIAS.findall(text))

    def line_of(location: str) -> int:
        for file, line, alias in _LOC_PART.findall(location):
            listing_line = int(line) if file == path else line_of(definitions.get(alias, "")) if alias else 0
            if listing_line:
                return listing_line
        return 0

    kept: list[str] = []
    lines: list[int] = []
    opened: list[list[int]] = []
    for raw in text.splitlines():
        if raw.startswith("#loc"):
            continue
        locations: list[str] = _LOC.findall(raw)
        shown = _LOC.sub("", raw)
        line = line_of(locations[-1]) if locations else 0
        at = len(kept)
        kept.append(shown)
        lines.append(line)
        closes, opens = shown.lstrip().startswith("}"), shown.endswith("{")
        if closes and opens and opened:
            opened[-1].append(at)
        elif closes and opened:
            for header in opened.pop():  # an operation with a body has its location after it
                lines[header] = line
        elif opens:
            opened.append([at])
    return _listing(kept, lines)


def llvm(text: str, path: str) -> Listing:
    """Return LLVM IR. Positions are `!dbg !12` after each instruction, defined by numbered metadata at the end."""
    metadata = {name: body for name, body in _METADATA.findall(text)}

    def file_of(scope: str) -> str:
        body = metadata.get(scope, "")
        if body.startswith("!DIFile"):
            parts: dict[str, str] = dict(_DI_FILE.findall(body))
            return str(PurePath(parts.get("directory", ""), parts.get("filename", "")))
        above = dict(_DI_ABOVE.findall(body))  # the scope of a function may be another file than its own
        return file_of(above.get("file") or above["scope"]) if above else ""

    def line_of(location: str) -> int:
        fields: dict[str, str] = dict(_DI_FIELD.findall(metadata.get(location, "")))
        if "line" in fields and file_of(location) == path:
            return int(fields["line"])
        return line_of(fields["inlinedAt"]) if "inlinedAt" in fields else 0

    kept: list[str] = []
    lines: list[int] = []
    for raw in text.splitlines():
        if raw.startswith("!"):
            continue
        location = _DBG.search(raw)
        kept.append(_DBG.sub("", raw))
        lines.append(line_of(location[1]) if location else 0)
    return _listing(kept, lines)


def ptx(text: str, path: str) -> Listing:
    """Return PTX from `with_own_lines`. A `.loc` precedes the instructions that it applies to."""
    files = dict(_PTX_FILE.findall(text))

    def line_of(loc: re.Match[str]) -> int:
        return int(loc["line"]) if files.get(loc["file"]) == path else 0

    return _assembly(_before(text, _PTX_DEBUG), _PTX_LOC, line_of, _PTX_NOISE)


def with_own_lines(text: str, path: str) -> str:
    """Return PTX whose `.loc`s name the Python file if they have a position in it, for an assembler that reads only
    these.

    LLVM writes the callers of an inlined function as `inlined_at` or in a comment, by file name. It counts each row of
    inline assembly as another line of the Python file; this is undone. The instructions stay the same.
    """
    files = dict(_PTX_FILE.findall(text))
    own = next((number for number, name in files.items() if name == path), "")
    callers: dict[str, str] = {}

    def line_of(loc: re.Match[str], row: int) -> int:
        if "@[" in (loc["comment"] or ""):
            return _own_place(loc["comment"], path)
        place = loc["place"]
        if loc["caller"]:
            callers[place] = loc["caller"]
        for _ in range(len(callers) + 1):
            file, line, _ = place.split()
            if file == own and int(line):  # line 0 marks code that the compiler added
                return int(line) - (row if place == loc["place"] else 0)
            place = callers.get(place, place)
        return 0

    kept: list[str] = []
    row = -1  # in inline assembly, its rows so far
    located = False
    for raw in text.splitlines(keepends=True):
        loc = _PTX_LOC.match(raw)
        if raw.startswith("\t// begin inline asm"):
            row, located = 0, False
        elif raw.startswith("\t// end inline asm"):
            row = -1
        elif loc is None:
            row += row >= 0
        elif row >= 0 and located:
            continue
        else:
            located = True
            line = line_of(loc, max(row, 0))
            raw = f"\t.loc\t{own} {line} 0\n" if line else f"\t.loc\t{loc['place']}\n"
        kept.append(raw)
    return "".join(kept)


def amdgcn(text: str, path: str) -> Listing:
    """Return AMD assembly. Positions are as in PTX, with the callers of inlined code in a comment, by file name."""

    def line_of(loc: re.Match[str]) -> int:
        return _own_place(loc["comment"] or "", path)

    return _assembly(_before(text, _AMD_DEBUG), _AMD_LOC, line_of, _AMD_NOISE)


def sass(text: str, path: str) -> Listing:
    """Return SASS from `nvdisasm -g -c`. A comment precedes the instructions that it applies to."""
    kept: list[str] = []
    lines: list[int] = []
    line = 0
    for raw in text.splitlines():
        place = _SASS_PLACE.match(raw)
        if place:
            line = int(place[2]) if place[1] == path else 0
        elif _SASS_INSTRUCTION.match(raw) or _SASS_LABEL.match(raw):
            kept.append(raw)
            lines.append(line if _SASS_INSTRUCTION.match(raw) else 0)
    while kept and _SASS_PADDING.search(kept[-1]):
        kept.pop()
        lines.pop()
    return _listing(kept, lines)


def _own_place(comment: str, path: str) -> int:
    """Return the first line of the file in `standard.py:216:16 @[ kernel.py:19:11 ]`, 0 for none."""
    places: list[tuple[str, str]] = _PLACE.findall(comment)
    return next((int(line) for name, line in places if name == PurePath(path).name), 0)


def _assembly(
    text: str, location: re.Pattern[str], line_of: Callable[[re.Match[str]], int], noise: re.Pattern[str]
) -> Listing:
    kept: list[str] = []
    lines: list[int] = []
    line = 0
    for raw in text.splitlines():
        listing_line = location.match(raw)
        if listing_line:
            line = line_of(listing_line)
        elif not noise.match(raw) and (raw.strip() or (kept and kept[-1].strip() and not line)):
            kept.append(raw)
            lines.append(line if _INSTRUCTION.match(raw) else 0)
        if raw.startswith("}"):
            line = 0
    return _listing(kept, lines)


def _listing(kept: list[str], lines: list[int]) -> Listing:
    while kept and not kept[-1].strip():
        kept.pop()
        lines.pop()
    return Listing("\n".join(kept) + "\n", tuple(lines))


def _before(text: str, end: re.Pattern[str]) -> str:
    listing_line = end.search(text)
    return text[: listing_line.start()] if listing_line else text


_LOC_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_LOC = re.compile(r' loc\((?:"[^"]*"|[^()"]|\((?:"[^"]*"|[^()"]|\([^()]*\))*\))*\)')
_LOC_PART = re.compile(r'"([^"]*)":(\d+)|(#loc\d*)')

_METADATA = re.compile(r"^(!\d+) = (?:distinct )?(.*)$", re.MULTILINE)
_DBG = re.compile(r",? !dbg (!\d+)")
_DI_FIELD = re.compile(r"\b(line|inlinedAt): (!?\d+)")
_DI_ABOVE = re.compile(r"\b(file|scope): (!\d+)")
_DI_FILE = re.compile(r'(filename|directory): "([^"]*)"')

_PTX_FILE = re.compile(r'^\t\.file\t(\d+) "([^"]*)"', re.MULTILINE)
_PTX_LOC = re.compile(
    r"\t\.loc\t(?P<place>(?P<file>\d+) (?P<line>\d+) \d+)"
    r"(?:, function_name \S+, inlined_at (?P<caller>\d+ \d+ \d+))?[^/]*(?:// (?P<comment>.*))?"
)
_PTX_NOISE = re.compile(
    r"\$L__(?:tmp|func_begin|func_end)\d+:|\t\.file\t|\t// (?:begin|end) inline asm|//(?: Generated|$)|\s+// [-@.]"
)
_PTX_DEBUG = re.compile(r"^\t\.section\t\.debug_", re.MULTILINE)

_AMD_LOC = re.compile(r"\t\.loc\t[^;]*(?:; (?P<comment>.*))?")
_PLACE = re.compile(r"([^\s:\[]+):(\d+):\d+")
_AMD_NOISE = re.compile(r"\.L(?:tmp|func_begin)\d+:|\t\.file\t|\t\.cfi_")
_AMD_DEBUG = re.compile(r"^\t\.section\t\.(?:debug_|AMDGPU\.gpr_maximums)", re.MULTILINE)

_INSTRUCTION = re.compile(r"\s+[@a-z{}]")

_SASS_PLACE = re.compile(r'\s*//## File "([^"]*)", line (\d+)')
_SASS_INSTRUCTION = re.compile(r"\s+/\*[0-9a-f]{4,}\*/")
_SASS_LABEL = re.compile(r"(?!\.text\.)[\w.$]+:")
_SASS_PADDING = re.compile(r"/\s+NOP ?;|^\.L_x_\d+:$")
