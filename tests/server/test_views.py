"""The views that the server believes open are those that the client has."""

import asyncio
from typing import Any, cast

import pytest

from fx_lsp.features.wording.uris import View, format_uri
from fx_lsp.model import Failure, StageInfo, Trace
from fx_lsp.server.display.views import Views
from fx_lsp.server.session import Session

VIEW = View("/w/m.py", "f", "forward")
TRACE = Trace("/w/m.py::f", (), (StageInfo("forward", 1, 1),), (), (), (), 0.0, "2.13")


class SlowStages:
    """An engine whose targets are traced, and whose stages take their time."""

    def __init__(self) -> None:
        self.closed: list[str] = []
        self.asked = asyncio.Event()

    def state(self, file: str) -> object:
        return file

    async def outcome(self, file: str, name: str, work: str = "") -> Trace:
        return TRACE

    async def stage(self, file: str, name: str, stage: str, work: str = "") -> Failure:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    def close(self, file: str) -> None:
        self.closed.append(file)


@pytest.mark.parametrize("is_open", [False, True], ids=["only asked for", "open"])
async def test_a_view_is_forgotten_whose_request_is_cancelled_unless_the_client_shows_it(is_open: bool):
    engine, session = SlowStages(), Session()
    session.engine = cast("Any", engine)
    nobody = cast("Any", None)
    views = Views(session, nobody, nobody, nobody, nobody)
    if is_open:
        views.opened(format_uri(VIEW))
    request = asyncio.ensure_future(views.text(VIEW))
    await engine.asked.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert (VIEW in session.views, engine.closed) == (is_open, [] if is_open else ["/w/m.py"])
