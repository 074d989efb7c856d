"""Files of kernels that a user keeps and edits: what they were generated from, and how they are brought up to date.

Nothing in such a file refers to us. What it was generated as is in the user's cache folder, one file of JSON for each:

    <cache>/generated/<hash of the file's path>.json
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

from fx_lsp import files
from fx_lsp.choices import TRITON
from fx_lsp.errors import ProtocolError
from fx_lsp.model import Failure, Work
from fx_lsp.tracing.analysis import Analysis, Texts, analyse, aside
from fx_lsp.tracing.answers.disk import Dependency, is_fresh
from fx_lsp.tracing.engine import Engine
from fx_lsp.tracing.kernel_files.merge import conflicts_in, merge
from fx_lsp.wire import parse, to_json

MAX_RECORDS = 1000
"""How many files of kernels are remembered."""
WRONG = "# These kernels do not compute the same as the original:\n"
"""The first line of a file whose comparison failed; what that said follows as comments, up to an empty line."""

Standing: TypeAlias = Literal["current", "changed", "gone", "unknown"]
"""Whether kernels are those of the present text of their function. "unknown" where that does not parse."""


@dataclass(frozen=True)
class Generated:
    """Kernels as they were generated: of the target `name` in the file `source`, with the choices in `work`.

    `digest` and `dependencies` say what of the source, and of other files, they were made from.
    """

    source: str
    name: str
    work: Work
    text: str
    digest: str = ""
    dependencies: tuple[Dependency, ...] = ()

    @property
    def title(self) -> str:
        """`model.py::f`"""
        return f"{Path(self.source).name}::{self.name}"

    def is_of(self, source: str, name: str) -> bool:
        """Return whether these are kernels of that target, by whatever path its file is reached."""
        return self.name == name and Path(self.source).resolve() == Path(source).resolve()


@dataclass(frozen=True)
class Record:
    """What a file of kernels was generated as last. `over` is the digest of the text that this was merged into, and
    `before` what that had been generated as: it is that again once somebody undoes the merge.
    """

    last: Generated
    over: str = ""
    before: Generated | None = None

    def of(self, present: str) -> Generated:
        """Return what the file is made from, if this is its text."""
        if self.before is None:
            return self.last
        undone = _hash(present) == self.over or present.replace("\r\n", "\n") == self.before.text
        return self.before if undone else self.last


@dataclass(frozen=True)
class Update:
    """The text of a file of kernels from now on. `kept` counts edits in it, `conflicts` are the lines, from 1, on
    which something was both edited and generated otherwise.
    """

    text: str
    kept: int = 0
    conflicts: tuple[int, ...] = ()

    def said(self, present: str | None) -> str:
        """Say what happened to the file, whose text was `present`."""
        kept = f"{_count(self.kept, 'edit')} kept" if self.kept else ""
        if self.conflicts:
            both = f"{_count(len(self.conflicts), 'conflict')} between your edits and the newly generated code"
            return ", ".join(filter(None, [both, kept])) + ": resolve them, and remove the markers"
        what = "unchanged" if self.text == present else "updated" if kept else "written"
        return ", ".join(filter(None, [what, kept]))


@dataclass(frozen=True)
class Refusal:
    """Why a file is left as it is, as the end of a sentence that its name begins; `conflicts` as in `Update`."""

    reason: str
    conflicts: tuple[int, ...] = ()


async def generate(engine: Engine, file: str, name: str, work: Work) -> Generated | Failure:
    """Return the kernels of a target of an open file, as it is now."""
    while True:
        before = engine.state(file)
        stage = await engine.stage(file, name, TRITON, work)
        if isinstance(stage, Failure):
            return stage
        dependencies, now = engine.dependencies(file, name, work), engine.state(file)
        if before is not None and now is not None and now.text == before.text:
            digest = await aside(now.text, partial(_digest, file, now.text, name))
            return Generated(file, name, work, stage.text, digest, dependencies)


def update(record: Record | None, present: str | None, new: Generated) -> Update | Refusal:
    """Return what becomes of a file with the text `present` (None without a file) when `new` is generated for it.

    Its line ends stay; so does what a comparison said of a text that stays.
    """
    if present is None or not present.strip():
        return Update(new.text)
    newline = "\r\n" if present.count("\r\n") * 2 > present.count("\n") else "\n"
    said, text = without_failure(present.replace("\r\n", "\n"))
    base = record.of(present) if record is not None else new if text == new.text else None
    if base is None:
        return Refusal("already exists, and was not generated here or its generated state is no longer known")
    if marks := conflicts_in(present):
        return Refusal("has unresolved conflicts", marks)
    if not base.is_of(new.source, new.name) and text != base.text:
        return Refusal(f"has edited kernels of {base.title}")
    merged = merge(base.text, text, new.text)
    whole = said + text if merged.text == text else merged.text
    return Update(whole.replace("\n", newline), merged.kept, merged.conflicts)


def without_failure(text: str) -> tuple[str, str]:
    """Return what a failed comparison said at the top of a file, or "", and the rest."""
    head = re.match(rf"{re.escape(WRONG)}(#.*\n)*\n?", text)
    return (head[0], text[head.end() :]) if head else ("", text)


def record_of(file: str | Path, base: Path | None = None) -> Record | None:
    """Return what is known of a file of kernels; None where it was not generated here."""
    try:
        return parse(Record, files.read_bytes(_place(file, base)))
    except (OSError, ProtocolError):
        return None


def is_known(file: str | Path, base: Path | None = None) -> bool:
    """Return whether a file of kernels was generated here."""
    return _place(file, base).exists()


def keep(file: str | Path, new: Generated, over: str | None = None, base: Path | None = None) -> None:
    """Remember that `new` is in a file, whose text was `over` where that has changed. Raises OSError.

    What is no file (`/dev/stdout`) is not remembered.
    """
    former, path, at = record_of(file, base), _place(file, base), Path(file)
    if at.exists() and not at.is_file():
        return
    record = Record(new)
    if former is not None and over is not None:
        record = Record(new, _hash(over), former.of(over))
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, json.dumps(to_json(record)))
    old = sorted(path.parent.glob("*.json"), key=lambda p: p.stat().st_mtime)[:-MAX_RECORDS]
    for forgotten in old:
        forgotten.unlink(missing_ok=True)


def undone(file: str | Path, present: str, base: Path | None = None) -> Record | None:
    """Return what is known of a file of kernels whose text is `present`.

    Where that is one from before the last merge, the merge is forgotten.
    """
    record = record_of(file, base)
    if record is None or record.of(present) == record.last:
        return record
    earlier = Record(record.of(present))
    with suppress(OSError):
        files.write(_place(file, base), json.dumps(to_json(earlier)))
    return earlier


def standing(kernels: Generated, text: str | None, overlays: Mapping[str, str]) -> Standing:
    """Return whether kernels are those of `text`, the present one of their source (None without it).

    `overlays` are unsaved texts of other files.
    """
    if text is None:
        return "gone"
    analysis = analyse(kernels.source, text, ())
    if analysis.failure is not None:
        return "unknown"
    if kernels.name not in analysis.targets:
        return "gone"
    fresh = is_fresh(kernels.dependencies, Texts(overlays, {kernels.source: analysis}))
    return "current" if fresh and _digest_in(analysis, kernels.name) == kernels.digest else "changed"


def read(file: str | Path) -> str | None:
    """Return the text of a file with its line ends, whatever bytes are in it; None without a file. Raises OSError."""
    return files.read_bytes(file).decode("utf-8", "surrogateescape") if Path(file).is_file() else None


def write(file: str | Path, text: str) -> None:
    """Give a file its new text in one step; its permissions stay. Raises OSError."""
    files.write(file, text.encode("utf-8", "surrogateescape"))


def _digest(file: str, text: str, name: str) -> str:
    analysis = analyse(file, text, ())
    return _digest_in(analysis, name) if name in analysis.targets else ""


def _digest_in(analysis: Analysis, name: str) -> str:
    """Return a hash of what a target's text and its written inputs say, without blank lines and comments."""
    plan = analysis.plan(name)
    return _hash("\n".join([name, plan.slice.fingerprint, *(written.text for written in plan.given[:1])]))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _place(file: str | Path, base: Path | None) -> Path:
    folder = base or files.cache_folder() / "generated"
    return folder / f"{_hash(str(Path(file).resolve()))[:32]}.json"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
