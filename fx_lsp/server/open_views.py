"""Store the views that the client shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fx_lsp.features.kernels import RenderedView, kernels_of
from fx_lsp.features.wording.uris import View, parse_uri
from fx_lsp.model import Outcome, Work
from fx_lsp.server import from_proto


@dataclass
class OpenView:
    """Hold a view that the client may be showing, and its file, if one was written.

    `origin` is the outcome that it was rendered from, and whether its work was done on that outcome. `rendered` is the
    client's version, below the comments in `head`, and `uri` the client's URI of the document. `stale` is True if it
    is marked as stale, or about to be.
    """

    origin: tuple[Outcome, bool] | None = None
    path: Path | None = None
    uri: str = ""
    rendered: RenderedView | None = None
    head: str = ""
    stale: bool = False


class OpenViews:
    """Hold the views sent to the client, and the last work that compiled the kernels of each target."""

    def __init__(self) -> None:
        self._open: dict[View, OpenView] = {}
        self._compiled: dict[tuple[str, str], Work] = {}

    def __contains__(self, view: View) -> bool:
        return view in self._open

    def __iter__(self) -> Iterator[View]:
        return iter(tuple(self._open))

    def get(self, view: View) -> OpenView | None:
        """Return a view that the client may be showing."""
        return self._open.get(view)

    def note(self, view: View) -> OpenView:
        """Return a view, adding it to the open ones."""
        return self._open.setdefault(view, OpenView())

    def remove(self, view: View) -> OpenView | None:
        """Remove a view and return it; None if it was not open."""
        return self._open.pop(view, None)

    def remove_unshown(self, view: View) -> None:
        """Remove a view whose text was never sent, and which the client has not opened."""
        shown = self._open.get(view)
        if shown is not None and not shown.uri and shown.path is None and shown.rendered is None:
            del self._open[view]

    def note_compiled(self, view: View) -> None:
        """Record that a view's work compiles the kernels of its target."""
        self._compiled[view.file, view.name] = view.work

    def compiled(self, view: View) -> Work:
        """Return the work that last compiled the kernels of a view's target, "" without any."""
        return self._compiled.get((view.file, view.name), "")

    def find(self, uri: str) -> View | None:
        """Return the view with a client's URI: of a document, or of the file of a view; None without one."""
        if (view := parse_uri(uri)) is not None:
            return view
        file = from_proto.file_of_uri(uri, ())
        return next((v for v, shown in self._open.items() if shown.path and str(shown.path) == file), None)

    def rendered(self, view: View) -> RenderedView | None:
        """Return the client's version of a view; None if the client does not show it."""
        shown = self._open.get(view)
        return None if shown is None else shown.rendered

    def above(self, view: View) -> int:
        """Return the number of lines above the rendered ones in the client's version of a view."""
        shown = self._open.get(view)
        return 0 if shown is None else shown.head.count("\n")

    def of_kernels(self, file: str) -> list[View]:
        """Return the open views of kernels' files of a file's targets."""
        return [view for view in self._open if view.file == file and view == kernels_of(view)]
