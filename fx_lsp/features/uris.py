"""`fx-lsp:` URIs: a readable name for a view of a target, enough to rebuild the view after a restart.

`fx-lsp:/home/me/model.py/Block.forward.py` is the forward graph of `Block` in `/home/me/model.py`. The last segment is
what an editor shows in a tab, and ends in `.py` so that editors take the text for Python. `Block.forward.full.py` is
the same with nothing folded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

SCHEME = "fx-lsp"

_DRIVE = re.compile(r"/[A-Za-z]:/")
_SUFFIX = ".py"
_FULL = ".full"


@dataclass(frozen=True)
class View:
    """One document made from a target: `stage` of the target `name` in the absolute path `file`.

    `full`: with every node, where repeated rounds of loops and layers would be folded.
    """

    file: str
    name: str
    stage: str
    full: bool = False

    @property
    def title(self) -> str:
        """The file name that an editor shows: `Block.forward.py`."""
        return f"{self.name}.{self.stage}{_FULL if self.full else ''}{_SUFFIX}"


def format_uri(view: View) -> str:
    """The URI of a view. POSIX, Windows drive and UNC paths are kept apart."""
    path = view.file
    if re.match(r"[A-Za-z]:[\\/]", path):
        path = "/" + path.replace("\\", "/")
    elif path.startswith("\\\\"):
        path = path.replace("\\", "/")
    return f"{SCHEME}:{quote(path, safe='/:' if _DRIVE.match(path) else '/')}/{quote(view.title, safe='')}"


def parse_uri(uri: str) -> View | None:
    """The inverse of `format_uri`, or None where `uri` names no view. Editors may percent-encode more than it did."""
    scheme, colon, rest = uri.partition(":")
    if not colon or scheme.lower() != SCHEME:
        return None
    if rest.startswith("///"):
        rest = rest[2:]
    path, slash, title = unquote(rest.split("?")[0].split("#")[0]).rpartition("/")
    title, suffix = title.removesuffix(_SUFFIX), title.endswith(_SUFFIX)
    full = title.endswith(_FULL)
    name, dot, stage = title.removesuffix(_FULL).rpartition(".")
    if not (slash and dot and path and name and stage and suffix and path.startswith("/")):
        return None
    if _DRIVE.match(path):
        path = path[1:].replace("/", "\\")
    elif path.startswith("//"):
        path = path.replace("/", "\\")
    return View(path, name, stage, full)
