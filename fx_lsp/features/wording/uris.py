"""Convert views to `fx-lsp:` URIs: readable, and sufficient to rebuild the view after a restart.

`fx-lsp:/home/me/model.py/Block.forward.py` is the forward graph of `Block` in `/home/me/model.py`. An editor shows the
last segment in a tab; it ends in `.py` so that editors treat the text as Python. `Block.forward.full.py` is the same
without folding. A query names the work that a stage comes from, and a stage to compare it with:
`…/Block.joint%3Aremove_noop_ops.diff?passes&from=decomposed`. Compiled kernels and benchmarks are not Python, and end
in `.txt`: `…/Block.ptx.txt?lowered&target=cuda:90`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from fx_lsp.model import MEMORY, Work, read_work

SCHEME = "fx-lsp"
LOWERED = "lowered"
"""The work that compiles kernels for a chip."""
BENCHMARK = "benchmark"
"""The page of a target's benchmarks. It is written as work, but no engine does it."""

_DRIVE = re.compile(r"/[A-Za-z]:/")
_SUFFIX = ".py"
_DIFF = ".diff"
_LISTING = ".txt"
_FULL = ".full"
_FROM = "from="


@dataclass(frozen=True)
class View:
    """Identify a document of a target: `stage` of the target `name` in the absolute path `file`.

    `full` shows every node, without folding. The stage comes from `work`; with `before`, the document is the diff from
    that stage to this one.
    """

    file: str
    name: str
    stage: str
    full: bool = False
    work: Work = ""
    before: str = ""

    @property
    def is_code(self) -> bool:
        """Return True if the text is Python, or nearly so."""
        return _ending(self.work, self.before) != _LISTING

    @property
    def title(self) -> str:
        """Return the file name that an editor shows: `Block.forward.py`."""
        return f"{self.name}.{self.stage}{_FULL if self.full else ''}{_ending(self.work, self.before)}"


def format_uri(view: View) -> str:
    """Return the URI of a view. POSIX, Windows drive and UNC paths stay distinct."""
    path = view.file
    if re.match(r"[A-Za-z]:[\\/]", path):
        path = "/" + path.replace("\\", "/")
    elif path.startswith("\\\\"):
        path = path.replace("\\", "/")
    parts = [view.work, f"{_FROM}{view.before}" if view.before else ""]
    query = "&".join(quote(part, safe="/:=&~") for part in parts if part)
    uri = f"{SCHEME}:{quote(path, safe='/:' if _DRIVE.match(path) else '/')}/{quote(view.title, safe='')}"
    return f"{uri}?{query}" if query else uri


def parse_uri(uri: str) -> View | None:
    """Return the view of a URI, or None if `uri` names no view. Accepts more percent-encoding than `format_uri`
    produces.
    """
    scheme, colon, rest = uri.partition(":")
    if not colon or scheme.lower() != SCHEME:
        return None
    if rest.startswith("///"):
        rest = rest[2:]
    place, _, query = rest.split("#")[0].partition("?")
    path, slash, title = unquote(place).rpartition("/")
    work, before = _query(unquote(query))
    ending = _ending(work, before)
    title, suffix = title.removesuffix(ending), title.endswith(ending)
    full = title.endswith(_FULL)
    name, dot, stage = title.removesuffix(_FULL).rpartition(".")
    if not (slash and dot and path and name and stage and suffix and path.startswith("/")):
        return None
    if _DRIVE.match(path):
        path = path[1:].replace("/", "\\")
    elif path.startswith("//"):
        path = path.replace("/", "\\")
    return View(path, name, stage, full, work, before)


def _ending(work: Work, before: str) -> str:
    return _DIFF if before else _LISTING if {LOWERED, BENCHMARK, MEMORY} & read_work(work).keys() else _SUFFIX


def _query(query: str) -> tuple[Work, str]:
    parts = query.split("&") if query else []
    before = next((part.removeprefix(_FROM) for part in parts if part.startswith(_FROM)), "")
    return "&".join(part for part in parts if not part.startswith(_FROM)), before
