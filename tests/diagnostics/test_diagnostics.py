"""What the editor says of whole files, in the files themselves: each problem is a comment with its caret.

A file of `cases/` is a program as somebody writes it. Its first line names the targets that are found in it; under each
expression with a problem stands a comment:

        return p.sum(0) - p.sum(1)
        #      ^^^^^^^^^^^^^^^^^^^ error[shape]: sizes 8 and 4 at dimension 0 do not broadcast

A target without a problem is traced. `UPDATE_GOLDEN=1 pytest tests/diagnostics` writes the comments anew; read what git
says of them.
"""

from __future__ import annotations

import asyncio
import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from carets import WIDTH, annotated, of_problem, stripped
from warm import warm_python

from fx_lsp.features.source.findings import TOLD, told
from fx_lsp.features.wording.problems import Problem, problems
from fx_lsp.model import Failure, Outcome, Target
from fx_lsp.tracing.engine import Engine, EngineSettings

pytestmark = pytest.mark.torch

SEARCH_SECONDS = 1.0
"""The work of a search: many of these are meant to fail."""
LONG_SEARCHES = {"concatenations": 5.0, "recurrent_layers": 5.0}
"""The same, where less work ends at another mistake."""
CASES = sorted((Path(__file__).parent / "cases").glob("*.py"))
_TARGETS = re.compile(r"^# targets:.*\n(#  .*\n)*")


class Engines:
    """Engines for all cases, by the work of their searches, and the loop that they run in."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._engines: dict[float, Engine] = {}

    def outcomes(self, file: str, text: str, seconds: float) -> list[tuple[Target, Outcome]]:
        """Return what becomes of the targets of a file."""
        return self.loop.run_until_complete(self._outcomes(file, text, seconds))

    async def _outcomes(self, file: str, text: str, seconds: float) -> list[tuple[Target, Outcome]]:
        if seconds not in self._engines:
            settings = EngineSettings(interpreter=warm_python(), workers=1, trace_on_open=False, search_seconds=seconds)
            self._engines[seconds] = Engine(settings, lambda file: None, lambda status: None)
        return await outcomes_of(self._engines[seconds], file, text)

    def close(self) -> None:
        """End the engines."""
        for engine in self._engines.values():
            self.loop.run_until_complete(engine.shutdown())
        self.loop.close()


@pytest.fixture(scope="session")
def engines() -> Iterator[Engines]:
    engines = Engines()
    yield engines
    engines.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_problems_of_a_file(case: Path, tmp_path: Path, engines: Engines) -> None:
    golden = case.read_text()
    text = stripped(_TARGETS.sub("", golden))
    (tmp_path / "pyproject.toml").touch()
    file = tmp_path / case.name
    file.write_text(text)
    outcomes = engines.outcomes(str(file), text, LONG_SEARCHES.get(case.stem, SEARCH_SECONDS))
    shown = told(problems(str(file), outcomes, None), TOLD, text)
    annotated = with_comments(text, [target for target, _ in outcomes], shown, str(tmp_path) + os.sep)
    if os.environ.get("UPDATE_GOLDEN"):
        case.write_text(annotated)
    assert annotated == golden


async def outcomes_of(engine: Engine, file: str, text: str) -> list[tuple[Target, Outcome]]:
    """Return what comes of each target of a file; what turns out to be no tensor code is left out."""
    engine.open(file, text, (os.path.dirname(file),))
    try:
        targets = await engine.targets(file)
        assert not isinstance(targets, Failure), targets
        for target in targets:
            await engine.outcome(file, target.name, final=True)
        state = engine.state(file)
        assert state is not None
        return [(t.target, t.outcome) for t in state.targets if t.outcome is not None]
    finally:
        engine.close(file)


def with_comments(text: str, targets: Sequence[Target], found: Sequence[Problem], folder: str) -> str:
    """Return a text with its targets in a comment above, and its problems in comments below their lines."""
    names = [target.name for target in targets if target.kind != "script"]
    head = textwrap.fill(f"targets: {', '.join(names)}", WIDTH, initial_indent="# ", subsequent_indent="#  ")
    return f"{head}\n{annotated(text, (of_problem(p, text, folder) for p in found if p.severity != 'hint'))}"
