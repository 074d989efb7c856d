"""Inputs that nobody would send: frames, messages, positions, documents, notebooks, Python, comments, settings, cache,
wire.

    python benchmarks/fuzz.py [--inputs 100000] [--seed 0] [--kinds frames,wire] [--only NUMBER]

Every input follows from the seed, its kind and its number: `--kinds wire --only 17` repeats one. A death is a process
that ends, a silence an input without an end or an answer, a traceback an exception that no caller expects, and a
difference a result that a plain model of the same thing does not have. Prints a Markdown table; exits with 1 unless all
of these are 0.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import dataclasses
import io
import json
import logging
import random
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
import types as python_types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from connection import ROOT, Connection, Ended, Refused, Silent, connect, table, within
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from lsprotocol import types

from fx_lsp.comments import fx_comment
from fx_lsp.errors import ProtocolError
from fx_lsp.features.source import expressions as source
from fx_lsp.features.source.comments import comment_problems
from fx_lsp.features.source.completion import completions
from fx_lsp.features.source.parameters import signature_of
from fx_lsp.features.wording.uris import format_uri, parse_uri
from fx_lsp.model import Failure, InputSpec, Node, Remark, Span, Stage, Trace, TraceReply, TraceRequest, WrittenInputs
from fx_lsp.server import from_proto
from fx_lsp.server.documents import OpenNotebook, OpenText
from fx_lsp.server.frames import BrokenFrame, read_frames
from fx_lsp.server.requests import text_sync
from fx_lsp.server.session import Session
from fx_lsp.server.settings import _ROWS, Settings, _switched, engine_settings, read_settings
from fx_lsp.specs import CommentError, TensorSpec, comment_items, names_used, parse_comment, parse_spec
from fx_lsp.tracing.analysis import analyse
from fx_lsp.tracing.answers.disk import Cache
from fx_lsp.wire import decode_stage, encode_stage, frame, from_json, pack, parse, read_frame, to_json, unpack

Check = Callable[[random.Random], str]
"""Try one input; return a difference, or "". Raises what a bug raises."""

LIMIT_SECONDS = 20
"""How long one input may take."""
BATCH = 50
"""Messages between two requests that are waited for."""
ODD_TEXTS = (
    "",
    "\0",
    "\ud800",
    "\r",
    "\f",
    "\u2028",
    "é",
    "😀",
    "\ufeff",
    "%",
    "\\",
    "'''",
    '"',
    "# fx:",
    "(",
    "]",
    ":",
    "\t",
)
ODD_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 2**31, 2**53, -(2**63), 1e308, float("nan"), float("inf"), *ODD_TEXTS, "a" * 3000,
    [], {}, [[]], [None], {"": None}, [1, "a"],
)  # fmt: skip
DEEP = (
    "-" * 3000 + "1",
    "[" * 90 + "]" * 90,
    "a" + ".b" * 900,
    "f" + "()" * 400,
    "1" + " + a" * 700,
    "not " * 300 + "a",
)
"""Expressions whose trees are deep."""
SHARES = {
    "frames": 15,
    "messages": 10,
    "positions": 15,
    "documents": 10,
    "notebooks": 5,
    "python": 5,
    "comments": 15,
    "settings": 10,
    "cache": 5,
    "wire": 10,
}
"""The kinds of inputs, with their share in percent."""


@dataclass
class Tally:
    """What came of the inputs of one kind; `first` describes the first that went wrong."""

    inputs: int = 0
    deaths: int = 0
    silences: int = 0
    tracebacks: int = 0
    differences: int = 0
    seconds: float = 0.0
    first: str = ""

    @property
    def wrong(self) -> int:
        """Return how many inputs went wrong."""
        return self.deaths + self.silences + self.tracebacks + self.differences

    def note(self, what: str, description: str) -> None:
        """Count one that went wrong: a field's name."""
        setattr(self, what, getattr(self, what) + 1)
        self.first = self.first or f"{what}: {description}"


def main() -> int:
    """Try all kinds, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(SHARES))
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    kinds = [kind for kind in SHARES if kind in options.kinds.split(",")]
    if options.only is not None:
        tally = tried(kinds[0], options.seed, range(options.only, options.only + 1))
        print(tally.first or "nothing went wrong")
        return int(tally.wrong > 0)
    started = time.perf_counter()
    tallies = {kind: in_process(kind, options.seed, options.inputs * SHARES[kind] // 100) for kind in kinds}
    print(report(tallies))
    print(f"\n{sum(t.inputs for t in tallies.values()):,} inputs, seed {options.seed}, ", end="")
    print(f"{time.perf_counter() - started:.0f} s")
    for kind, tally in tallies.items():
        if tally.wrong:
            print(f"\n{kind}, {tally.first}")
    return int(any(tally.wrong for tally in tallies.values()))


def report(tallies: Mapping[str, Tally]) -> str:
    """Return a table of what came of each kind."""
    header = ("kind", "inputs", "deaths", "silences", "tracebacks", "differences", "seconds")
    rows = [
        (kind, f"{t.inputs:,}", t.deaths, t.silences, t.tracebacks, t.differences, f"{t.seconds:.0f}")
        for kind, t in tallies.items()
    ]
    return table(header, rows)


def in_process(kind: str, seed_: int, inputs: int) -> Tally:
    """Try inputs in another process, whose end is a death."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        try:
            return executor.submit(tried, kind, seed_, range(inputs)).result()
        except BrokenProcessPool as error:
            return Tally(inputs, deaths=1, first=f"deaths: {error}")


def tried(kind: str, seed_: int, numbers: range) -> Tally:
    """Try the inputs of a kind with these numbers."""
    warnings.simplefilter("ignore")
    started = time.perf_counter()
    if kind == "messages":
        tally = asyncio.run(messages(seed_, numbers))
    elif kind == "documents":
        tally = documents(seed_, len(numbers))
    else:
        with CHECKS[kind]() as check:
            tally = each(kind, check, seed_, numbers)
    tally.seconds = time.perf_counter() - started
    return tally


def each(kind: str, check: Check, seed_: int, numbers: range) -> Tally:
    """Try inputs one after the other."""
    tally = Tally(len(numbers))
    for number in numbers:
        try:
            with limited():
                if difference := check(random.Random(f"{seed_} {kind} {number}")):
                    tally.note("differences", f"input {number}: {difference}")
        except Silent as error:
            tally.note("silences", f"input {number}: {error}")
        except (SystemExit, KeyboardInterrupt) as error:
            tally.note("deaths", f"input {number}: {error!r}")
        except BaseException:
            tally.note("tracebacks", f"input {number}: {traceback.format_exc()}")
    return tally


@contextmanager
def limited() -> Iterator[None]:
    """Raise Silent where this takes too long (not on Windows)."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def stop(*_: object) -> None:
        raise Silent(f"no end within {LIMIT_SECONDS} s")

    former = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


@contextmanager
def unlogged() -> Iterator[None]:
    """Log nothing: of damaged files there are warnings."""
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


# How inputs are changed.


def changed_text(rng: random.Random, text: str, pieces: Sequence[str]) -> str:
    """Return a text after a few edits: parts are left out, repeated, exchanged, replaced."""
    for _ in range(rng.randint(1, 4)):
        start = rng.randint(0, len(text))
        end = min(len(text), start + int(rng.expovariate(0.2)))
        part = rng.choice(("", text[start:end] * 2, text[start:end][::-1], rng.choice(pieces), rng.choice(ODD_TEXTS)))
        text = text[:start] + part + text[end:]
    return text


def changed_bytes(rng: random.Random, data: bytes) -> bytes:
    """Return bytes of which a few are others, left out or repeated."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(changed) + 1)
        end = start + rng.choice((0, 1, 1, 1, rng.randint(0, 40)))
        changed[start:end] = rng.choice((rng.randbytes(end - start), b"", bytes(changed[start:end]) * 2))
    return bytes(changed)


def changed_json(rng: random.Random, value: Any) -> Any:
    """Return data of which one part is something else, or is missing."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice([*value])
        if rng.random() < 0.15:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: changed_json(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.8:
        number = rng.randrange(len(value))
        return [*value[:number], changed_json(rng, value[number]), *value[number + 1 :]]
    return rng.choice(ODD_VALUES)


def snippets() -> list[str]:
    """Return definitions of real files, each with the imports of its file."""
    files = [
        *(ROOT / "examples").rglob("*.py"),
        *(ROOT / "tests" / "fixtures").glob("*.py"),
        *(ROOT / "fx_lsp" / "tracer").rglob("*.py"),
    ]
    texts: list[str] = []
    for file in sorted(files):
        text = file.read_text()
        body = ast.parse(text).body
        imports = [ast.get_source_segment(text, n) or "" for n in body if isinstance(n, (ast.Import, ast.ImportFrom))]
        for node in body:
            lines = text.splitlines()[node.lineno - 1 - len(getattr(node, "decorator_list", ())) : node.end_lineno]
            if not isinstance(node, (ast.Import, ast.ImportFrom)) and 2 <= len(lines) <= 50:
                texts.append("\n".join([*imports, "", *lines, ""]))
    return texts


# The kinds of inputs: each yields a check.


@contextmanager
def frames() -> Iterator[Check]:
    """Whole messages come through, whatever is between them; a stream that is cut or changed ends without an error."""

    def check(rng: random.Random) -> str:
        bodies = [rng.randbytes(rng.choice((0, 1, 20))).replace(b"\n", b" ") for _ in range(rng.randint(1, 5))]
        headers = (b"Content-Length: %d\r\n\r\n", b"content-length:%d\n\n", b"X: y\r\nContent-Length:\t00%d\r\n\r\n")
        parts = [rng.choice(headers) % len(body) + body for body in bodies]
        noise = [rng.choice((b"", b"\r\n\r\n", b"{}", rng.randbytes(30) + b"\n", b"X: 1\r\n\r\n")) for _ in parts]
        data = b"".join(a + b for a, b in zip(noise, parts, strict=True))
        whole = [body for body in read_frames(io.BytesIO(data)) if isinstance(body, bytes)]
        if whole != bodies:
            return f"{data!r} has the messages {bodies}, read as {whole}"
        cut = [body for body in read_frames(io.BytesIO(data[: rng.randrange(len(data))])) if isinstance(body, bytes)]
        if cut != bodies[: len(cut)]:
            return f"{data!r}, cut, is read as {cut}"
        broken = [*read_frames(io.BytesIO(changed_bytes(rng, data)))]
        ends = [number for number, one in enumerate(broken) if isinstance(one, BrokenFrame) and one.is_end]
        return f"something follows the end: {broken}" if ends not in ([], [len(broken) - 1]) else ""

    yield check


@contextmanager
def positions() -> Iterator[Check]:
    """A position of a client is the place that a walk over the characters of a line finds."""
    alphabet = ("a", " ", "é", "😀", "\u2028", "\f", "\n", "\r", "\r\n", "\t", "中")

    def check(rng: random.Random) -> str:
        text = "".join(rng.choices(alphabet, k=rng.randint(0, 40)))
        encoding = rng.choice([*UNITS])
        at = types.Position(rng.choice((0, 1, 2, 5, 2**31 - 1)), rng.choice((0, 1, 2, 3, 7, 2**31 - 1)))
        line, col = from_proto.position(from_proto.split_lines(text), at, encoding)
        offset = offset_of(text, at, encoding)
        before = text[:offset]
        start = starts_of(text)[line - 1]
        if text[start:offset] != text[start:].encode()[:col].decode() or not before.startswith(text[:start]):
            return f"{at} of {text!r} in {encoding} is {line}:{col}, not the offset {offset}"
        uri = "".join(
            rng.choices(
                ("/", "a", ".py", "%", "%00", "file:", "fx-lsp:", "?", "#", "é", "\\", "[", "..", "f.forward.py"),
                k=rng.randint(1, 9),
            )
        )
        from_proto.file_of_uri(uri, ["/nowhere"])
        view = parse_uri(uri)
        return f"{uri} is {view}, which is {format_uri(view)}" if view and parse_uri(format_uri(view)) != view else ""

    yield check


@contextmanager
def notebooks() -> Iterator[Check]:
    """The module of a notebook that an editor changes is the Python cells of a plain list that is changed alike, and a
    position in a cell is that position in the module.
    """
    pieces = ("a", " ", "é", "😀", "\u2028", "\f", "\n", "\r", "\r\n", "x = 1", "%time", "%%bash\ngit pull", "(", "?")
    kinds = (types.NotebookCellKind.Code, types.NotebookCellKind.Markup)

    def check(rng: random.Random) -> str:
        encoding, numbers = rng.choice([*UNITS]), count()
        notebook, model = OpenNotebook("file:///b.ipynb", "/b.ipynb", 1), list[_Cell]()
        for version in range(rng.randint(1, 8)):
            step = rng.choice(("structure", "kinds", "text"))
            if step == "structure":
                opened = [
                    _Cell(f"c{next(numbers)}", "".join(rng.choices(pieces, k=rng.randint(0, 6))), rng.choice(kinds))
                    for _ in range(rng.randint(0, 2))
                ]
                notebook = notebook.with_structure(_restructured(rng, model, opened))
            elif step == "kinds" and model:
                cell = rng.choice(model)
                cell.kind = rng.choice(kinds)
                notebook = notebook.with_kinds([types.NotebookCell(cell.kind, cell.uri)])
            elif model:
                cell, (first, last) = (
                    rng.choice(model),
                    (types.Position(rng.randint(0, 3), rng.randint(0, 9)) for _ in "ab"),
                )
                new = "".join(rng.choices(pieces, k=rng.randint(0, 4)))
                start = offset_of(cell.text, first, encoding)
                cell.text = cell.text[:start] + new + cell.text[max(start, offset_of(cell.text, last, encoding)) :]
                change = types.TextDocumentContentChangePartial(types.Range(first, last), new)
                identifier = types.VersionedTextDocumentIdentifier(version, cell.uri)
                notebook = notebook.with_text(types.NotebookDocumentCellContentChanges(identifier, [change]), encoding)
        return _differing_cell(notebook.module(), [cell for cell in model if cell.is_python])

    yield check


@dataclass
class _Cell:
    """A cell of the plain list."""

    uri: str
    text: str
    kind: types.NotebookCellKind
    language: str = "python"

    @property
    def is_python(self) -> bool:
        return self.kind == types.NotebookCellKind.Code and self.language == "python"


def _restructured(
    rng: random.Random, model: list[_Cell], opened: list[_Cell]
) -> types.NotebookDocumentCellChangeStructure:
    """Put new cells among others, which are removed or change places; return this change."""
    start, number = rng.randint(0, len(model) + 1), rng.randint(0, 2)
    for cell in opened:
        cell.language = rng.choice(("python", "bash"))
    cells = [*opened, *(model[start : start + number] if rng.random() < 0.5 else ())]
    rng.shuffle(cells)
    model[start : start + number] = cells
    array = types.NotebookCellArrayChange(start, number, [types.NotebookCell(cell.kind, cell.uri) for cell in cells])
    items = [types.TextDocumentItem(cell.uri, cell.language, 1, cell.text) for cell in opened]
    return types.NotebookDocumentCellChangeStructure(array, items)


def _differing_cell(module: OpenText, cells: list[_Cell]) -> str:
    if [cell.uri for cell in module.cells] != [cell.uri for cell in cells]:
        return f"{[cell.uri for cell in module.cells]} are the cells, not {[cell.uri for cell in cells]}"
    for place, cell in zip(module.cells, cells, strict=True):
        lines = [line.rstrip("\r\n") for line in from_proto.split_lines(cell.text)]
        own = [line.rstrip("\n") for line in module.lines[place.above : place.above + place.lines]]
        if own != lines and not (cell.text.lstrip().startswith("%%") and own == [""] * len(lines)):
            return f"{own} are the lines of {cell.text!r}"
        for line in range(len(lines)):
            at = types.Position(line, 0)
            there = module.location(types.Range(place.module_position(at), place.module_position(at)))
            if there != types.Location(cell.uri, types.Range(at, at)):
                return f"line {line} of {cell.uri} is {there}"
    return ""


UNITS: dict[str, Callable[[str], int]] = {
    "utf-8": lambda character: len(character.encode()),
    "utf-16": lambda character: 2 if ord(character) > 0xFFFF else 1,
    "utf-32": lambda character: 1,
}
"""How many units a character has in each encoding of positions."""


def starts_of(text: str) -> list[int]:
    """Return the offsets at which lines begin."""
    ends = (n for n, c in enumerate(text) if c == "\n" or (c == "\r" and text[n + 1 : n + 2] != "\n"))
    return [0, *(end + 1 for end in ends)]


def offset_of(text: str, at: types.Position, encoding: str) -> int:
    """Return the offset in a text of a client's position: the plain model."""
    starts = starts_of(text)
    if at.line >= len(starts):
        return len(text)
    offset, units = starts[at.line], at.character
    while offset < len(text) and text[offset] not in "\r\n" and (units := units - UNITS[encoding](text[offset])) >= 0:
        offset += 1
    return offset


@contextmanager
def python() -> Iterator[Check]:
    """Whatever Python accepts is analysed; targets are definitions of the text, and the same for the same text."""
    texts = snippets()
    pieces = [*DEEP, *sorted({word for text in texts for word in text.split()})]

    def check(rng: random.Random) -> str:
        text = from_proto.clean_text(changed_text(rng, rng.choice(texts), pieces))
        analysis = analyse("/nowhere/m.py", text, ("/nowhere",))
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            ast.parse(text.removeprefix("\ufeff"))
            if analysis.failure is not None:
                return f"refused, although Python accepts it: {analysis.failure.message}\n{text}"
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        for target in analysis.targets.values():
            name = lines[target.name_span.line - 1].encode()[target.name_span.col : target.name_span.end_col].decode()
            if name and name not in target.name:
                return f"{target.name} is at {name!r}\n{text}"
            analysis.request(target.name, {}, 5.0, ())
            analysis.key(target.name, "python", 5.0)
            signature_of(text, target)
            for ask in (source.bindings, source.returns, source.chained_calls, source.attribute_reads):
                ask(text, target.span)
            source.expression_at(text, target.span, rng.randint(1, len(lines)), rng.randint(0, 40))
        again = analyse("/nowhere/m.py", text, ("/nowhere",))
        return "" if again.targets == analysis.targets else f"the second time it has other targets\n{text}"

    yield check


@contextmanager
def comments() -> Iterator[Check]:
    """A comment is read or has an error at its characters; a spec that is read is written as it is read."""
    items = (
        "x=f32[8, 128]", "n=4", "y=i64[B, 4](1, 4)@cuda:1", "init(dim=64, bias=False)", "eval()", "m={'a': f32[2]}",
        "t=(f32[1], [b8[]])", "s='a, b'", "e=torch.arange(4)", "ignore[shape]", "d=bf16[]",
    )  # fmt: skip
    pieces = (
        *DEEP,
        ",",
        "=",
        "[",
        "]",
        "f32",
        "f32[",
        "init(",
        "train()",
        "**x",
        "*x",
        "lambda: 0",
        "N",
        ")",
        "{",
        "'",
    )

    def check(rng: random.Random) -> str:
        text = from_proto.clean_text(changed_text(rng, ", ".join(rng.choices(items, k=rng.randint(0, 4))), pieces))
        parsed = parse_comment(text)
        size = len(text.encode())
        if isinstance(parsed, CommentError):
            if not 0 <= parsed.col <= parsed.end_col or parsed.col > size or not parsed.message:
                return f"{text!r} has an error at {parsed.col} to {parsed.end_col} of {size}: {parsed.message}"
        else:
            names_used(parsed)
            for spec in parsed.args.values():
                if isinstance(spec, TensorSpec) and parse_spec(str(spec)) != spec:
                    return f"{spec} is not read as it is written"
        for item in comment_items(text).items:
            if not 0 <= item.col < item.end_col <= size:
                return f"{text!r} has an item at {item.col} to {item.end_col}"
        module = f"import torch\n\n\n# fx: {text}\ndef f(x, n: int, *, y=None):\n    return torch.relu(x)\n"
        targets = analyse("/nowhere/m.py", module, ()).targets
        problems = comment_problems("/nowhere/m.py", module, targets.values())
        for target in targets.values():
            comment = fx_comment(module, target)
            if comment is not None:
                comment.place(rng.randint(0, size), rng.randint(0, size + 3))
        line = module.split("\n")[3]
        completions(module, line, (4, rng.randint(0, len(line.encode()))), [(t, None) for t in targets.values()])
        last = module.count("\n") + 1
        outside = [p for p in problems if not 1 <= p.span.line <= p.span.end_line <= last]
        return f"{text!r} has problems elsewhere: {outside}" if outside else ""

    yield check


KINDS = {row.field: row.kind for row in _ROWS}
TYPES = {name: KINDS[name] if value is None else type(value) for name, value in vars(Settings()).items()}
"""The type of each setting that is not None."""


@contextmanager
def setting_values() -> Iterator[Check]:
    """A value that fits is used, any other has a sentence and leaves the former one."""

    def check(rng: random.Random) -> str:
        row = rng.choice(_ROWS)
        fitting: Any = {
            bool: rng.random() < 0.5,
            float: rng.choice((1, 2.5, 10**9)),
            tuple: [["/a", "/b"]],
            list: ["ls"],
            str: rng.choice(row.values or ("/usr/bin/python", "ü")),
        }[row.kind]
        base = Settings()
        raw: Any = fitting
        for key in reversed(row.key.split(".")):
            raw = {key: raw}
        settings_read, wrong = read_settings(rng.choice((raw, {"fx-lsp": raw}, {row.key: fitting})), base)
        value = getattr(settings_read, row.field)
        wanted = (
            _switched(row, fitting, getattr(base, row.field))
            if isinstance(value, frozenset)
            else tuple(map(tuple, fitting))
            if row.kind is tuple
            else tuple(fitting)
            if row.kind is list
            else fitting
        )
        if wrong or value != wanted:
            return f"{row.key} = {fitting!r} gives {value!r}, {wrong}"
        broken, sentences = read_settings(changed_json(rng, {"fx-lsp": raw}), base, settings_read)
        engine_settings(broken, lambda file: True)
        for one in dataclasses.fields(Settings):
            value = getattr(broken, one.name)
            if value is not None and type(value) is not TYPES[one.name]:
                return f"{one.name} is {getattr(broken, one.name)!r}"
        return "" if all(isinstance(s, str) and s for s in sentences) else f"no sentences: {sentences}"

    yield check


SPAN = Span("/project/modèle.py", 3, 8, 3, 20)
NODES = (
    Node("x", "placeholder", "primals_1", users=("mm",), spec="f32[4, 4]"),
    Node(
        "mm",
        "call_function",
        "aten.mm.default",
        ("x", "x"),
        ("x", "x"),
        ("output",),
        "f32[4, 4]",
        (SPAN, SPAN),
        flops=9,
    ),
    Node("output", "output", "output", ("'\ud800\n'", "mm"), ("mm",), comment="saved → kept"),
)
STAGE = Stage("forward", NODES, "import triton\n\ny = x @ x\n", (0, 0, 2))
TRACE = Trace(
    "/m.py::f",
    (InputSpec("x", "f32[4, 4]", "search", guessed=True),),
    (),
    (),
    (),
    ("f32[2]",),
    0.1,
    "2.13",
    ("a note",),
)
FAILURE = Failure("shape", "sizes do not fit", SPAN, "write the shapes down", "error", partial=TRACE)


@contextmanager
def cache() -> Iterator[Check]:
    """A stored answer whose bytes have changed is the same answer, or none; the next answer is stored."""
    with tempfile.TemporaryDirectory() as folder, unlogged():
        path = Path(folder) / "traces.sqlite3"
        stages = {"forward": encode_stage(STAGE)}
        store = Cache(str(path))
        store.put("key", TraceReply(TRACE, stages), (1, 2), ())
        store.close()
        whole = path.read_bytes()
        with closing(sqlite3.connect(path)) as connection:
            answer, stage = connection.execute("SELECT answer, data FROM traces JOIN stages USING (key)").fetchone()

        def change_value(rng: random.Random) -> None:
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                column, value = rng.choice((("traces SET answer", answer), ("stages SET data", stage)))
                odd = (changed_bytes(rng, value), changed_bytes(rng, value), b"", None, "text", 7)
                with suppress(sqlite3.IntegrityError):
                    connection.execute(f"UPDATE {column} = ?", (rng.choice(odd),))

        def check(rng: random.Random) -> str:
            path.write_bytes(whole)
            if rng.random() < 0.7:
                change_value(rng)
            else:
                path.write_bytes(changed_bytes(rng, whole))
            store = Cache(str(path))
            try:
                cached, data = store.get("key", {}), store.stage("key", "forward")
                if cached is not None and cached.outcome != TRACE:
                    return f"another answer comes back: {cached.outcome}"
                if data is not None and data != stages["forward"]:
                    return f"another stage comes back: {data!r}"
                store.put("other", TraceReply(FAILURE), (), ())
                back = store.get("other", {})
                if not store.trouble and (back is None or back.outcome != FAILURE):
                    return f"the next answer is not stored: {back}"
            finally:
                store.close()
                for other in Path(folder).iterdir():
                    other.unlink()
            return ""

        yield check


@contextmanager
def wire() -> Iterator[Check]:
    """What comes over a pipe is data that is written as it was read, or a ProtocolError."""
    request = TraceRequest(
        "/m.py",
        "f",
        "function",
        "def f(x): ...",
        "def f(x): ...",
        "m",
        "",
        (),
        (WrittenInputs("x=f32[4]", "comment", SPAN),),
    )
    values: tuple[Any, ...] = (TRACE, FAILURE, request, Remark("a remark", SPAN), SPAN, NODES[1])
    encoded = encode_stage(STAGE)
    framed = frame({"reply": to_json(TRACE)}, b"body") * 2

    def check(rng: random.Random) -> str:
        value = rng.choice(values)
        with suppress(ProtocolError):
            again = from_json(type(value), changed_json(rng, to_json(value)))
            if from_json(type(value), json.loads(json.dumps(to_json(again)))) != again and "nan" not in repr(again):
                return f"{again} is not read as it is written"
        with suppress(ProtocolError):
            stage = decode_stage(changed_bytes(rng, encoded))
            if decode_stage(encode_stage(stage)) != stage:
                return f"{stage} is not decoded as it was encoded"
        with suppress(ProtocolError):
            unpack(type(value), changed_bytes(rng, pack(value)))
        with suppress(ProtocolError):
            parse(type(value), changed_bytes(rng, json.dumps(to_json(value)).encode()))
        with suppress(ProtocolError):
            stream = io.BytesIO(changed_bytes(rng, framed))
            while read_frame(stream.read) is not None:
                pass
        return ""

    yield check


CHECKS: dict[str, Callable[[], Any]] = {
    "frames": frames,
    "positions": positions,
    "notebooks": notebooks,
    "python": python,
    "comments": comments,
    "settings": setting_values,
    "cache": cache,
    "wire": wire,
}


# Documents: edits, compared with a plain string.

PLACE = st.builds(types.Position, st.integers(0, 12), st.integers(0, 12))
PIECE = st.text(st.sampled_from("a é😀\n\r\t\f\u2028#:\ud800"), max_size=8)


class _Listener:
    """What is told that somebody typed, and which documents are open."""

    def typed(self) -> None:
        """Do nothing."""

    def forget(self, file: str) -> None:
        """Do nothing."""

    def opened(self, document: Any) -> None:
        """Do nothing."""

    def stop(self, key: str) -> None:
        """Do nothing."""


class EditedDocuments(RuleBasedStateMachine):
    """Texts that an editor opens, changes, undoes and closes, and plain strings that are edited alike."""

    steps = 0

    @initialize(encoding=st.sampled_from([*UNITS]))
    def connect(self, encoding: str) -> None:
        """Begin with nothing open."""
        self.session = Session(encoding=encoding)
        self.history: dict[str, list[str]] = {}

    @rule(number=st.integers(0, 2), text=PIECE)
    def open(self, number: int, text: str) -> None:
        """Open a document, also one that is open."""
        uri = f"file:///nowhere/m{number}.py"
        item = types.TextDocumentItem(uri=uri, language_id="python", version=1, text=text)
        text_sync.did_open(self.session, _no_views(), _listener(), types.DidOpenTextDocumentParams(item))
        self.history[uri] = [_clean(text)]

    @precondition(lambda self: self.history)
    @rule(data=st.data(), edits=st.lists(st.tuples(PLACE, PLACE, PIECE, st.booleans()), min_size=1, max_size=3))
    def change(self, data: Any, edits: list[tuple[types.Position, types.Position, str, bool]]) -> None:
        """Change a document, in one message."""
        uri = data.draw(st.sampled_from(sorted(self.history)))
        text, changes = self.history[uri][-1], []
        for start, end, new, is_whole in edits:
            if is_whole:
                changes.append(types.TextDocumentContentChangeWholeDocument(text=new))
                text = _clean(new)
                continue
            changes.append(types.TextDocumentContentChangePartial(range=types.Range(start, end), text=new))
            first = offset_of(text, start, self.session.encoding)
            last = max(first, offset_of(text, end, self.session.encoding))
            text = text[:first] + _clean(new) + text[last:]
        self._tell(uri, changes)
        self.history[uri].append(text)

    @precondition(lambda self: any(len(texts) > 1 for texts in self.history.values()))
    @rule(data=st.data())
    def undo(self, data: Any) -> None:
        """Undo the last change of a document, as one change of its whole range."""
        uri = data.draw(st.sampled_from(sorted(uri for uri, texts in self.history.items() if len(texts) > 1)))
        self.history[uri].pop()
        whole = types.Range(types.Position(0, 0), types.Position(2**31 - 1, 0))
        self._tell(uri, [types.TextDocumentContentChangePartial(range=whole, text=self.history[uri][-1])])

    @precondition(lambda self: self.history)
    @rule(data=st.data())
    def close(self, data: Any) -> None:
        """Close a document."""
        uri = data.draw(st.sampled_from(sorted(self.history)))
        document = types.TextDocumentIdentifier(uri)
        nobody: Any = _no_views()
        params = types.DidCloseTextDocumentParams(document)
        text_sync.did_close(self.session, nobody, nobody, nobody, _listener(), _listener(), params)
        del self.history[uri]

    @invariant()
    def same(self) -> None:
        """The server has the same texts, in the same lines."""
        type(self).steps += 1
        for uri, texts in getattr(self, "history", {}).items():
            document = self.session.documents.get(uri)
            assert document is not None and document.text == texts[-1]
            assert [*document.lines] == from_proto.split_lines(document.text)
            assert len(document.lines) == len(starts_of(document.text))

    def _tell(self, uri: str, changes: Sequence[Any]) -> None:
        document = types.VersionedTextDocumentIdentifier(version=2, uri=uri)
        params = types.DidChangeTextDocumentParams(document, changes)
        text_sync.did_change(self.session, _listener(), params)


def _clean(text: str) -> str:
    return text.replace("\ud800", "\ufffd")


def _listener() -> Any:
    return _Listener()


def _no_views() -> Any:
    nothing = python_types.SimpleNamespace()
    nothing.forget = nothing.clear = lambda _: None
    return nothing


def documents(seed_: int, inputs: int) -> Tally:
    """Edit documents; the steps of all examples are the inputs."""
    tally, length = Tally(), 50
    EditedDocuments.steps = 0
    while EditedDocuments.steps < inputs and not tally.wrong:
        machine = seed(seed_ * 1000 + EditedDocuments.steps)(EditedDocuments)
        examples = max(1, (inputs - EditedDocuments.steps) // length)
        options = settings(
            max_examples=examples,
            stateful_step_count=length,
            database=None,
            deadline=None,
            suppress_health_check=[*HealthCheck],
        )
        try:
            run_state_machine_as_test(machine, settings=options)
        except AssertionError:
            tally.note("differences", traceback.format_exc())
        except Exception:
            tally.note("tracebacks", traceback.format_exc())
    tally.inputs = EditedDocuments.steps
    return tally


# Messages: a server whose engine knows its answers.

FAKE = (sys.executable, str(ROOT / "tests" / "server" / "fake_engine.py"))
MODULE = "import torch\n\ndef f(x): return x + 1\ndef g(x): return fail\n# fx: x=f32[2]\ndef h(x): return x if y\n"


def known_messages(uri: str) -> list[dict[str, Any]]:
    """Return one message of each kind, without its id."""
    document, at = {"uri": uri}, {"line": 2, "character": 5}
    place = {"textDocument": document, "position": at}
    range_ = {"start": {"line": 0, "character": 0}, "end": at}
    view = {"uri": f"fx-lsp:{uri.removeprefix('file://')}/f.inference.py"}
    item = {**document, "languageId": "python", "version": 1, "text": MODULE}
    notebook, cell = {"uri": f"{uri}.ipynb", "version": 1}, {"kind": 2, "document": "cell:1"}
    params: dict[str, Any] = {
        "textDocument/didOpen": {"textDocument": item},
        "textDocument/didChange": {
            "textDocument": {**document, "version": 2},
            "contentChanges": [{"range": range_, "text": "é"}, {"text": MODULE}],
        },
        "textDocument/didSave": {"textDocument": document},
        "textDocument/didClose": {"textDocument": {"uri": uri + "x"}},
        "notebookDocument/didOpen": {
            "notebookDocument": {**notebook, "notebookType": "jupyter-notebook", "cells": [cell]},
            "cellTextDocuments": [{**item, "uri": "cell:1"}],
        },
        "notebookDocument/didChange": {
            "notebookDocument": notebook,
            "change": {
                "cells": {
                    "structure": {"array": {"start": 0, "deleteCount": 1, "cells": [cell]}},
                    "textContent": [{"document": {"uri": "cell:1", "version": 2}, "changes": [{"text": MODULE}]}],
                }
            },
        },
        "workspace/didChangeWatchedFiles": {"changes": [{"uri": uri, "type": 2}]},
        "workspace/didChangeConfiguration": {"settings": {"fx-lsp": {"sizes": "names"}}},
        "window/workDoneProgress/cancel": {"token": "a"},
        "$/cancelRequest": {"id": 3},
        "$/setTrace": {"value": "off"},
        "textDocument/codeLens": {"textDocument": document},
        "textDocument/hover": place,
        "textDocument/documentHighlight": {**place, "textDocument": view},
        "textDocument/definition": {**place, "textDocument": view},
        "textDocument/inlayHint": {"textDocument": document, "range": range_},
        "textDocument/codeAction": {"textDocument": document, "range": range_, "context": {"diagnostics": []}},
        "textDocument/completion": {"textDocument": {"uri": "cell:1"}, "position": {"line": 4, "character": 8}},
        "workspace/textDocumentContent": view,
        "fxLsp/document": view,
        "fxLsp/related": {**view, "line": 2},
        "fxLsp/graph": view,
        "fxLsp/memory": {"uri": uri, "name": "f"},
        "fxLsp/functions": {"uri": "cell:1"},
        "fxLsp/origins": view,
        "fxLsp/benchmark": view,
    }
    commands = {
        "fxLsp.showStage": [uri, "f", "inference"],
        "fxLsp.passes": [uri],
        "fxLsp.runPass": [uri, "p", "f"],
        "fxLsp.showFailure": [uri, "g"],
        "fxLsp.stopBench": [uri, "f"],
        "fxLsp.hosts": [],
        "fxLsp.restart": [],
        "fxLsp.clearCache": [],
    }
    executed = [{"command": name, "arguments": arguments} for name, arguments in commands.items()]
    pairs = [*params.items(), *(("workspace/executeCommand", one) for one in executed)]
    return [{"method": method, "params": one} for method, one in pairs]


async def messages(seed_: int, numbers: range) -> Tally:
    """Send changed messages; every request has one answer, and the server goes on."""
    tally = Tally(len(numbers))
    with tempfile.TemporaryDirectory() as folder:
        uri = (Path(folder) / "m.py").as_uri()
        messages_of_client = known_messages(uri)
        async with connect(Path(folder), command=FAKE) as server:
            server.open(uri, MODULE)
            for start in range(0, len(numbers), BATCH):
                batch = numbers[start : start + BATCH]
                if not await _sent(server, tally, [(n, _message(seed_, n, messages_of_client)) for n in batch]):
                    break
            tally.tracebacks += server.bugs
            if server.bugs:
                tally.first = tally.first or f"tracebacks: {server.first_bug}"
            with suppress(Silent):
                if await server.end() != 0:
                    tally.note("deaths", f"the exit code is not 0: {server.log}")
    return tally


def _message(seed_: int, number: int, known: Sequence[dict[str, Any]]) -> dict[str, Any] | bytes:
    """Return one message, or a body that is no JSON."""
    rng = random.Random(f"{seed_} messages {number}")
    message = {"jsonrpc": "2.0", **rng.choice(known)}
    if message["method"].partition("/")[2][:3] not in ("did", "wor") and not message["method"].startswith("$"):
        message["id"] = f"fuzz {number}"
    for _ in range(rng.choice((0, 1, 1, 1, 2))):
        message["params"] = changed_json(rng, message["params"])
    if rng.random() < 0.1:
        message = changed_json(rng, message)
    if rng.random() < 0.1:
        return changed_bytes(rng, json.dumps(message).encode())
    return message if isinstance(message, dict) and message.get("method") not in ("shutdown", "exit") else b"[]"


async def _sent(server: Connection, tally: Tally, batch: Sequence[tuple[int, dict[str, Any] | bytes]]) -> bool:
    """Send messages and wait for their answers; return whether the server goes on."""
    answers: list[tuple[int, Any]] = []
    for number, message in batch:
        if isinstance(message, bytes):
            server.write(b"\xff\0 no frame\n" * (number % 2))
            server.write(b"Content-Length: %d\r\n\r\n%s" % (len(message), message))
        elif message.get("id") == f"fuzz {number}" and isinstance(message.get("method"), str) and "jsonrpc" in message:
            answers.append((number, server.expect(message)))
        else:
            server.send({key: value for key, value in message.items() if key != "jsonrpc"})
    try:
        await server.ask("textDocument/codeLens", {"textDocument": {"uri": "file:///nothing.py"}}, LIMIT_SECONDS)
    except (Ended, Silent) as error:
        tally.note("deaths" if isinstance(error, Ended) else "silences", f"inputs {batch}: {server.log}")
        return False
    for number, answer in answers:
        try:
            await within(answer, LIMIT_SECONDS, "a request")
        except Refused:
            pass
        except Silent:
            tally.note("silences", f"input {number}: {dict(batch)[number]}")
    return True


if __name__ == "__main__":
    sys.exit(main())
