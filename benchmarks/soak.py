"""A day of editing, bounded by its messages: is every answer that of a fresh server, and is nothing left?

    python benchmarks/soak.py [FOLDER] [--messages 50000] [--files 200] [--open 50] [--samples 5] [--seed 0]

The Python files of FOLDER (else: examples, fixtures, and the mistakes of `benchmarks/mistakes`) are copied to a git
repository with two branches. Somebody types, deletes, undoes, saves, renames, switches branches, opens graphs and
cancels, in at most `--open` different files. `--samples` times, when nothing is left to trace, the lenses, hints,
problems and graphs of the open documents are compared with those of a fresh server that has opened the same texts, and
the memory and descriptors of each process are measured. Linux only. Prints a Markdown table; exits with 1 where an
answer differs, none comes, the memory grows by more than a tenth after the first quarter, or anything is left.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from connection import ROOT, Connection, Refused, Silent, connect, open_files, resident, table, within

SECONDS = 120.0
"""How long an answer may take: a view waits for its trace."""
OPEN_AT_ONCE = 6
VIEWS_AT_ONCE = 3
BATCH = 40
"""Messages between two moments at which all answers are waited for."""
FOLDERS = ("examples", "tests/fixtures", "benchmarks/mistakes")
OPTIONS = {"limits": {"seconds": 10, "memory": 2048}}
LINES = ("    # a note", "    x = 1", "    print(2)", "", "    return 3", "import math", "    y = (")
MEASUREMENTS = 12
GROWTH = 1.1


@dataclass
class Document:
    """A text that is open, with the texts before its last changes."""

    path: Path
    text: str
    version: int = 1
    before: list[str] = field(default_factory=list[str])

    @property
    def uri(self) -> str:
        """Return its URI."""
        return self.path.as_uri()


@dataclass
class Report:
    """What came of a day."""

    messages: int = 0
    requests: int = 0
    refused: int = 0
    silences: int = 0
    compared: int = 0
    guesses: int = 0
    seconds: float = 0.0
    actions: Counter[str] = field(default_factory=Counter[str])
    differences: list[str] = field(default_factory=list[str])
    memory: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    descriptors: list[int] = field(default_factory=list[int])
    left: list[str] = field(default_factory=list[str])

    def growth(self, kind: str) -> float:
        """Return the memory of the last quarter relative to that of the second; 1.0 with too few measurements."""
        measured = self.memory[kind]
        quarter = len(measured) // 4
        if not quarter:
            return 1.0
        return statistics.median(measured[-quarter:]) / statistics.median(measured[quarter : 2 * quarter])

    @property
    def is_wrong(self) -> bool:
        """Return whether something went wrong."""
        grown = any(self.growth(kind) > GROWTH for kind in self.memory)
        return bool(self.silences or self.differences or self.left or grown)


def main() -> int:
    """Edit for a day."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--open", type=int, default=50)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    report = asyncio.run(
        day(sources(options.folder, options.files), options.messages, options.open, options.samples, options.seed)
    )
    print(shown(report))
    for difference in report.differences[:10]:
        print(f"\n{difference}")
    return int(report.is_wrong)


def sources(folder: Path | None, files: int) -> dict[str, str]:
    """Return the texts of files by the paths that they get."""
    roots = [ROOT / name for name in FOLDERS] if folder is None else [folder]
    paths = [(path, path.relative_to(root)) for root in roots for path in sorted(root.rglob("*.py"))]
    texts: dict[str, str] = {}
    for path, place in paths:
        with suppress(UnicodeDecodeError):
            if len(texts) < files and (text := path.read_text(encoding="utf-8")).strip():
                texts[str(place)] = text
    return texts


def shown(report: Report) -> str:
    """Return the table of a report."""
    rows: list[tuple[object, object]] = [
        ("messages", f"{report.messages:,}, {report.requests:,} of them requests, in {report.seconds:.0f} s"),
        ("actions", ", ".join(f"{count} {action}" for action, count in report.actions.most_common())),
        ("requests refused with a sentence", report.refused),
        ("requests without an answer", report.silences),
        ("answers compared with those of a fresh server", report.compared),
        ("answers that differ", len(report.differences)),
        ("answers that differ only in guessed sizes", report.guesses),
    ]
    for kind, measured in report.memory.items():
        text = f"{measured[0] >> 20} → {measured[-1] >> 20} MiB, × {report.growth(kind):.2f} after the first quarter"
        rows.append((f"memory of the {kind}", text))
    rows.append(("descriptors of the server", f"{report.descriptors[0]} → {report.descriptors[-1]}"))
    rows.append(("left: processes, descriptors, files, tracebacks", "; ".join(report.left) or "nothing"))
    return table(("", ""), rows)


async def day(texts: dict[str, str], messages: int, open_: int, samples: int, seed: int) -> Report:
    """Edit files until so many messages are sent."""
    report, started = Report(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fx-soak-") as name_:
        folder = Path(name_)
        begin_repository(folder, texts)
        async with connect(folder, OPTIONS, encoding="utf-32") as server:
            editor = Editing(server, folder, report, random.Random(seed), [*texts], open_)
            before = await idle(server)
            for _ in range(OPEN_AT_ONCE):
                editor.open()
            await measure(report, server)
            marks = _marks(messages, MEASUREMENTS)
            comparisons = _marks(messages, samples)
            while server.sent < messages:
                await editor.batch()
                if marks and server.sent >= marks[0]:
                    del marks[0]
                    await measure(report, server)
                if comparisons and server.sent >= comparisons[0]:
                    del comparisons[0]
                    await compare(report, editor)
            editor.close_all()
            await measure(report, server)
            report.messages = server.sent
            report.left += (Counter(await idle(server)) - Counter(before)).elements()
            if await server.end() != 0:
                report.left.append("an exit code other than 0")
            if not await server.processes.gone():
                report.left += server.processes.all().values()
            report.left += server.leftovers
            if server.bugs:
                report.left.append(server.first_bug)
    report.seconds = time.monotonic() - started
    return report


def _marks(messages: int, times: int) -> list[int]:
    """Return after how many messages something happens that happens so many times."""
    return [messages * number // times for number in range(1, times + 1)]


def begin_repository(folder: Path, texts: dict[str, str]) -> None:
    """Write files on two branches: on the second, every whole number of the code is greater by one."""
    git(folder, "init", "-q", "-b", "one")
    (folder / ".gitignore").write_text(".cache\n.config\n.state\n")
    for branch in ("one", "two"):
        if branch == "two":
            git(folder, "checkout", "-q", "-b", "two")
        for place, text in texts.items():
            path = folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(
                text if branch == "one" else re.sub(r"(?<=[* +])(\d)\b", lambda m: str(int(m[1]) + 1), text)
            )
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", branch)


def git(folder: Path, *arguments: str) -> None:
    """Run git in a folder."""
    identity = ("-c", "user.name=soak", "-c", "user.email=soak@localhost", "-c", "core.autocrlf=false")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


class Editing:
    """Somebody who edits: the open documents, and what an editor would send. Nothing is waited for but in `batch`."""

    def __init__(
        self, server: Connection, folder: Path, report: Report, rng: random.Random, places: list[str], open_: int
    ) -> None:
        self.server, self.folder, self.report, self.rng = server, folder, report, rng
        self.places = rng.sample(places, min(open_, len(places)))
        self.documents: list[Document] = []
        self.views: list[str] = []
        self.branch = "one"
        self._renamed = 0
        self._pending: list[tuple[str, asyncio.Future[Any]]] = []
        self._actions = [action for action, weight in ACTIONS.items() for _ in range(weight)]

    async def batch(self) -> None:
        """Do what somebody does in a while, then wait for the answers."""
        last = self.server.sent + BATCH
        while self.server.sent < last:
            action = self.rng.choice(self._actions)
            self.report.actions[action] += 1
            if not self.documents:
                self.open()
            getattr(self, action)()
        pending, self._pending = self._pending, []
        for what, answer in pending:
            try:
                await within(answer, SECONDS, what)
            except Refused:
                self.report.refused += 1
            except Silent:
                self.report.silences += 1

    def open(self) -> None:
        """Open a file; the one that is open for the longest time is closed where there are many."""
        closed = [
            path for path in map(self.folder.joinpath, self.places) if path not in {d.path for d in self.documents}
        ]
        if len(self.documents) >= OPEN_AT_ONCE:
            self.close(self.documents[0])
        if closed:
            path = self.rng.choice(closed)
            document = Document(path, path.read_text(encoding="utf-8"))
            self.documents.append(document)
            self.server.open(document.uri, document.text)

    def close(self, document: Document | None = None) -> None:
        """Close a document; what was not saved is lost."""
        document = document or self.rng.choice(self.documents)
        self.documents.remove(document)
        self.server.close(document.uri)

    def close_all(self) -> None:
        """Close everything."""
        for document in [*self.documents]:
            self.close(document)
        while self.views:
            self.server.close(self.views.pop())

    def insert(self) -> None:
        """Insert a line, in a few messages as it is typed."""
        document = self.rng.choice(self.documents)
        start = self._line_start(document)
        line = self.rng.choice(LINES) + "\n"
        for piece in (line[:5], line[5:]):
            self._replace(document, start, start, piece)
            start += len(piece)

    def number(self) -> None:
        """Replace a number by another."""
        document = self.rng.choice(self.documents)
        numbers = [*re.finditer(r"\b\d+\b", document.text)]
        if numbers:
            match = self.rng.choice(numbers)
            self._replace(document, *match.span(), str(self.rng.randint(1, 9)))

    def delete(self) -> None:
        """Delete a line."""
        document = self.rng.choice(self.documents)
        start = self._line_start(document)
        end = document.text.find("\n", start) + 1
        self._replace(document, start, end or len(document.text), "")

    def undo(self) -> None:
        """Undo the last changes, at times all of them."""
        document = self.rng.choice(self.documents)
        if document.before:
            first = -min(self.rng.choice((1, 2, 99)), len(document.before))
            text, document.before = document.before[first], document.before[:first]
            self._whole(document, text)

    def save(self) -> None:
        """Save a document."""
        document = self.rng.choice(self.documents)
        document.path.write_text(document.text, encoding="utf-8")
        self.server.notify("textDocument/didSave", {"textDocument": {"uri": document.uri}})
        self._changed_on_disk((document.path, 2))

    def rename(self) -> None:
        """Rename a file that is open."""
        document = self.rng.choice(self.documents)
        self._renamed += 1
        new = document.path.with_name(f"renamed_{self._renamed}.py")
        self.close(document)
        document.path.rename(new)
        self.places = [place for place in self.places if self.folder / place != document.path]
        self.places.append(str(new.relative_to(self.folder)))
        self._changed_on_disk((document.path, 3), (new, 1))
        again = Document(new, new.read_text(encoding="utf-8"))
        self.documents.append(again)
        self.server.open(again.uri, again.text)

    def switch(self) -> None:
        """Switch to the other branch: the editor shows what is on disk then."""
        self.branch = "two" if self.branch == "one" else "one"
        git(self.folder, "checkout", "-q", "-f", self.branch)
        paths = [self.folder / place for place in self.places]
        self._changed_on_disk(*((path, 2 if path.exists() else 3) for path in paths))
        self.places = [place for place in self.places if (self.folder / place).exists()]
        for document in [*self.documents]:
            if document.path.exists():
                self._whole(document, document.path.read_text(encoding="utf-8"))
                document.before.clear()
            else:
                self.close(document)

    def hover(self) -> None:
        """Hover over something."""
        document = self.rng.choice(self.documents)
        offset = self.rng.randint(0, len(document.text))
        place = {"textDocument": {"uri": document.uri}, "position": position(document.text, offset)}
        self._request(self.rng.choice(("textDocument/hover", "textDocument/completion")), place)

    def redraw(self) -> None:
        """Ask for what an editor draws beside the text."""
        document = {"uri": self.rng.choice(self.documents).uri}
        whole = {"start": {"line": 0, "character": 0}, "end": {"line": 10_000, "character": 0}}
        self._request("textDocument/codeLens", {"textDocument": document})
        self._request("textDocument/inlayHint", {"textDocument": document, "range": whole})
        asked = {"textDocument": document, "range": whole, "context": {"diagnostics": []}}
        self._request("textDocument/codeAction", asked)

    def view(self) -> None:
        """Open a graph; the one that is open for the longest time is closed where there are many."""
        if (uri := self._view()) is not None and uri not in self.views:
            self._request("workspace/textDocumentContent", {"uri": uri})
            self.server.open(uri, "")
            self.views.append(uri)
        if len(self.views) > VIEWS_AT_ONCE:
            self.server.close(self.views.pop(0))

    def cancel(self) -> None:
        """Ask for a graph, and do without."""
        if (uri := self._view()) is not None:
            number = self._request("workspace/textDocumentContent", {"uri": uri})
            self.server.notify("$/cancelRequest", {"id": number})

    def _view(self) -> str | None:
        document = self.rng.choice(self.documents)
        targets = re.findall(r"^(?:def|class) (\w+)", document.text, re.MULTILINE)
        stage = self.rng.choice(("forward", "forward", "backward", "inference", "memory"))
        return f"fx-lsp:{document.path}/{self.rng.choice(targets)}.{stage}.py" if targets else None

    def _request(self, method: str, params: Any) -> int:
        self.report.requests += 1
        number, answer = self.server.request(method, params)
        self._pending.append((method, answer))
        return number

    def _line_start(self, document: Document) -> int:
        starts = [0, *(match.end() for match in re.finditer("\n", document.text))]
        return self.rng.choice(starts)

    def _replace(self, document: Document, start: int, end: int, new: str) -> None:
        range_ = {"start": position(document.text, start), "end": position(document.text, end)}
        document.before = [*document.before[-20:], document.text]
        document.text = document.text[:start] + new + document.text[end:]
        document.version += 1
        self.server.change(document.uri, document.version, {"range": range_, "text": new})

    def _whole(self, document: Document, text: str) -> None:
        document.text = text
        document.version += 1
        self.server.change(document.uri, document.version, {"text": text})

    def _changed_on_disk(self, *changes: tuple[Path, int]) -> None:
        events = [{"uri": path.as_uri(), "type": kind} for path, kind in changes]
        self.server.notify("workspace/didChangeWatchedFiles", {"changes": events})


ACTIONS = {
    "hover": 30,
    "redraw": 20,
    "insert": 10,
    "number": 12,
    "undo": 8,
    "delete": 5,
    "view": 6,
    "save": 4,
    "cancel": 3,
    "open": 4,
    "close": 1,
    "rename": 1,
    "switch": 1,
}
"""What somebody does, and how often."""


def position(text: str, offset: int) -> dict[str, int]:
    """Return the place of an offset, in characters."""
    return {"line": text.count("\n", 0, offset), "character": offset - (text.rfind("\n", 0, offset) + 1)}


async def measure(report: Report, server: Connection) -> None:
    """Measure memory and descriptors, once nothing is left to trace."""
    with suppress(Silent):
        await server.quiet(SECONDS)
    report.memory["server"].append(resident(server.process.pid))
    for zygote in server.processes.zygotes()[:1]:
        report.memory["zygote"].append(resident(zygote))
    report.descriptors.append(len(open_files(server.process.pid)))


async def idle(server: Connection) -> list[str]:
    """Return the descriptors that a server has without documents, once its processes have been started again."""
    await server.ask("workspace/executeCommand", {"command": "fxLsp.restart", "arguments": []})
    with suppress(Silent):
        await server.quiet(SECONDS)
    return open_files(server.process.pid)


async def compare(report: Report, editor: Editing) -> None:
    """Compare the answers on the open documents with those of a fresh server.

    Of a text that does not parse, a server shows what it has of the last that did. Guessed sizes may be those of an
    earlier text: a guess that still runs stays.
    """
    documents = [document for document in editor.documents if parses(document.text)]
    for document in [*editor.documents]:
        if document not in documents:
            editor.close(document)
    with tempfile.TemporaryDirectory() as cache:
        options = {**OPTIONS, "cache": {"path": f"{cache}/traces.sqlite3"}}
        async with connect(editor.folder, options, encoding="utf-32") as fresh:
            for document in documents:
                fresh.open(document.uri, document.text)
            answers = [await everything(server, documents) for server in (editor.server, fresh)]
            await fresh.end()
        for one, other in zip(*answers, strict=True):
            if any("took more than" in text for text in (*one.values(), *other.values())):
                continue  # which line is reached within a limit depends on the machine
            for what in one.keys() | other.keys():
                texts = one.get(what, "none"), other.get(what, "none")
                report.compared += 1
                if texts[0] == texts[1]:
                    continue
                if "~" in texts[0] and "~" in texts[1] and without_sizes(texts[0]) == without_sizes(texts[1]):
                    report.guesses += 1
                else:
                    report.differences.append(f"{what}:\n{texts[0]}\n\nfrom a fresh server:\n{texts[1]}")


async def everything(server: Connection, documents: Sequence[Document]) -> list[dict[str, str]]:
    """Return what a server says of each of some documents, once nothing is left to trace."""
    await server.quiet(4 * SECONDS)
    said: list[dict[str, str]] = []
    whole = {"start": {"line": 0, "character": 0}, "end": {"line": 10_000, "character": 0}}
    for document in documents:
        item = {"textDocument": {"uri": document.uri}}
        hints = await server.ask("textDocument/inlayHint", {**item, "range": whole}, SECONDS)
        problems, name = server.problems.get(document.uri, ()), document.path.name
        texts = {
            f"{name}, lenses": await server.titles(document.uri),
            f"{name}, hints": [f"{hint['position']} {hint['label']}" for hint in hints or ()],
            f"{name}, problems": [f"{p['range']['start']} {p['message']}" for p in problems],
        }
        for target in re.findall(r"^(?:def|class) (\w+)", document.text, re.MULTILINE)[:2]:
            view = f"fx-lsp:{document.path}/{target}.forward.py"
            with suppress(Refused):
                texts[view] = (await server.view(view, SECONDS)).splitlines()
            server.close(view)
        said.append({what: "\n".join(untimed(lines)) for what, lines in texts.items()})
    return said


def parses(text: str) -> bool:
    """Return whether a text is Python."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def without_sizes(text: str) -> str:
    """Return a text without its numbers and shapes."""
    return re.sub(r"\[[^\]]*\]|\d[\d.,]*( [KMG]iB| B\b)?", "#", text)


def untimed(lines: Iterator[str] | Sequence[str]) -> list[str]:
    """Return lines without how long something took."""
    return [re.sub(r"\b[\d.]+ m?s\b", "… s", line) for line in lines]


if __name__ == "__main__":
    sys.exit(main())
