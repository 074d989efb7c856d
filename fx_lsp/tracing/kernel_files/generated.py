"""Record the sources of files of kernels that a user keeps and edits, and update the files.

Such a file contains no reference to fx-lsp. Its generated version is in the user's cache folder, as JSON:
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

from fx_lsp import files, folders
from fx_lsp.choices import TRITON
from fx_lsp.errors import ProtocolError
from fx_lsp.model import Failure, Work
from fx_lsp.tracing.analysis import Analysis, Texts, analyse, aside
from fx_lsp.tracing.answers.disk import Dependency, is_fresh
from fx_lsp.tracing.engine import Engine
from fx_lsp.tracing.kernel_files.merge import conflicts_in, merge
from fx_lsp.wire import parse, to_json

MAX_RECORDS = 1000
"""The most files of kernels with a record."""
WRONG = "# These kernels failed their check:\n"
"""The first line of a file whose comparison failed; the result follows as comments, up to an empty line."""

Standing: TypeAlias = Literal["current", "changed", "gone", "unknown"]
"""The state of kernels relative to the text of their function. "unknown" if the text does not parse."""


@dataclass(frozen=True)
class Generated:
    """Hold kernels as generated: for the target `name` in the file `source`, with the choices in `work`.

    `digest` and `dependencies` identify the text of the source, and of other files, that they were generated from.
    """

    source: str
    name: str
    work: Work
    text: str
    digest: str = ""
    dependencies: tuple[Dependency, ...] = ()

    @property
    def title(self) -> str:
        """Return `model.py::f`."""
        return f"{Path(self.source).name}::{self.name}"

    def is_of(self, source: str, name: str) -> bool:
        """Return True if these are kernels of that target, by any path of its file."""
        return self.name == name and Path(self.source).resolve() == Path(source).resolve()


@dataclass(frozen=True)
class Record:
    """Hold the last generated version of a file of kernels. `over` is the digest of the text that this was merged into,
    and `before` the generated version of that text, which applies again if the merge is undone.
    """

    last: Generated
    over: str = ""
    before: Generated | None = None

    def of(self, present: str) -> Generated:
        """Return the generated version that the text `present` is based on."""
        if self.before is None:
            return self.last
        undone = _hash(present) == self.over or present.replace("\r\n", "\n") == self.before.text
        return self.before if undone else self.last


@dataclass(frozen=True)
class Update:
    """Hold the new text of a file of kernels. `kept` counts edits in it, `conflicts` are the lines, from 1, that were
    both edited and generated differently.
    """

    text: str
    kept: int = 0
    conflicts: tuple[int, ...] = ()

    def said(self, present: str | None) -> str:
        """Return a sentence on the changes to the file, whose text was `present`."""
        kept = f"{_count(self.kept, 'edit')} kept" if self.kept else ""
        if self.conflicts:
            both = f"{_count(len(self.conflicts), 'conflict')} between your edits and the newly generated code"
            return ", ".join(filter(None, [both, kept])) + ": resolve them, and remove the markers"
        what = "unchanged" if self.text == present else "updated" if kept else "written"
        return ", ".join(filter(None, [what, kept]))


@dataclass(frozen=True)
class Refusal:
    """Hold the reason why a file is left unchanged, as the end of a sentence after its name; `conflicts` is as in
    `Update`.
    """

    reason: str
    conflicts: tuple[int, ...] = ()


async def generate(engine: Engine, file: str, name: str, work: Work) -> Generated | Failure:
    """Return the kernels of the current text of a target in an open file."""
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
    """Return the update of a file with the text `present` (None without a file) when `new` is generated for it.

    Line ends are kept; so is the result of a comparison, if its text is kept.
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
    """Return the result of a failed comparison at the top of a file, or "", and the rest."""
    head = re.match(rf"{re.escape(WRONG)}(#.*\n)*\n?", text)
    return (head[0], text[head.end() :]) if head else ("", text)


def record_of(file: str | Path, base: Path | None = None) -> Record | None:
    """Return the record of a file of kernels; None if it was not generated here."""
    try:
        return parse(Record, files.read_bytes(_place(file, base)))
    except (OSError, ProtocolError):
        return None


def is_known(file: str | Path, base: Path | None = None) -> bool:
    """Return True if a file of kernels was generated here."""
    return _place(file, base).exists()


def keep(file: str | Path, new: Generated, over: str | None = None, base: Path | None = None) -> None:
    """Record that `new` is in a file, and its previous text `over`, if that has changed. Raises OSError.

    A path that is not a regular file (`/dev/stdout`) is not recorded.
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
    """Return the record of a file of kernels whose text is `present`.

    If that text precedes the last merge, the merge is removed from the record.
    """
    record = record_of(file, base)
    if record is None or record.of(present) == record.last:
        return record
    earlier = Record(record.of(present))
    with suppress(OSError):
        files.write(_place(file, base), json.dumps(to_json(earlier)))
    return earlier


def standing(kernels: Generated, text: str | None, overlays: Mapping[str, str]) -> Standing:
    """Return whether kernels match `text`, the current one of their source (None if it is missing).

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
    """Return the text of a file with its line ends and with undecodable bytes escaped; None without a file. Raises
    OSError.
    """
    return files.read_bytes(file).decode("utf-8", "surrogateescape") if Path(file).is_file() else None


def write(file: str | Path, text: str) -> None:
    """Replace the text of a file in one step; its permissions stay. Raises OSError."""
    files.write(file, text.encode("utf-8", "surrogateescape"))


def _digest(file: str, text: str, name: str) -> str:
    analysis = analyse(file, text, ())
    return _digest_in(analysis, name) if name in analysis.targets else ""


def _digest_in(analysis: Analysis, name: str) -> str:
    """Return a hash of a target's text and its written inputs, without blank lines and comments."""
    plan = analysis.plan(name)
    return _hash("\n".join([name, plan.slice.fingerprint, *(written.text for written in plan.given[:1])]))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _place(file: str | Path, base: Path | None) -> Path:
    folder = base or folders.cache_folder() / "generated"
    return folder / f"{_hash(str(Path(file).resolve()))[:32]}.json"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
