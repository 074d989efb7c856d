"""The views that the client shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fx_lsp.features.kernels import RenderedView, kernels_of
from fx_lsp.features.uris import View, parse_uri
from fx_lsp.model import Outcome, Work
from fx_lsp.server import from_proto


@dataclass
class OpenView:
    """A view that the client may be showing, and the file that it was written to.

    `origin` is the outcome that it was rendered from, and whether the work that it shows was done with that; `rendered`
    what the client has of it, and `uri` what it calls the document that it opened. `stale` where it is marked as that,
    or about to be.
    """

    origin: tuple[Outcome, bool] | None = None
    path: Path | None = None
    uri: str = ""
    rendered: RenderedView | None = None
    stale: bool = False


class OpenViews:
    """The views that were given to the client, and which work compiled the kernels of a target last."""

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
        """Return a view, which is open from now on."""
        return self._open.setdefault(view, OpenView())

    def remove(self, view: View) -> OpenView | None:
        """Forget a view and return what it was."""
        return self._open.pop(view, None)

    def note_compiled(self, view: View) -> None:
        """Note that a view's work compiles the kernels of its target."""
        self._compiled[view.file, view.name] = view.work

    def compiled(self, view: View) -> Work:
        """Return the work that compiled the kernels of a view's target last, "" where none did."""
        return self._compiled.get((view.file, view.name), "")

    def find(self, uri: str) -> View | None:
        """Return the view that the client has under a URI: of a document, or of a file that a view was written to."""
        if (view := parse_uri(uri)) is not None:
            return view
        file = from_proto.file_of_uri(uri, ())
        return next((v for v, shown in self._open.items() if shown.path and str(shown.path) == file), None)

    def rendered(self, view: View) -> RenderedView | None:
        """Return what the client has of a view; None for one that it does not show."""
        shown = self._open.get(view)
        return None if shown is None else shown.rendered

    def of_target(self, file: str, name: str) -> dict[View, RenderedView]:
        """Return the views of a target that the client shows, as it has them."""
        rendered = ((v, s.rendered) for v, s in self._open.items() if (v.file, v.name) == (file, name))
        return {view: shown for view, shown in rendered if shown is not None}

    def of_kernels(self, file: str) -> list[View]:
        """Return the files of kernels of a file's targets that the client shows."""
        return [view for view in self._open if view.file == file and view == kernels_of(view)]
