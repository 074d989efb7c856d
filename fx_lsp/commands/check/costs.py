"""`fx-lsp check --since REV --costs`, `--compare-python`: what targets cost before and after a change of either."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from fx_lsp.commands.check.changes import changed_since, texts_at
from fx_lsp.commands.check.listing import Progress
from fx_lsp.commands.check.survey import FileReport, SurveyScope, survey
from fx_lsp.commands.places import place_text
from fx_lsp.commands.sources import read_source, shown_path
from fx_lsp.features.costs.changes import (
    COSTS,
    ChangedTarget,
    CostPlace,
    TargetCosts,
    change_text,
    changed_target,
    lines_between,
)
from fx_lsp.features.costs.summary import Place
from fx_lsp.features.wording.text import count
from fx_lsp.model import Span
from fx_lsp.tracing.engine import Engine
from fx_lsp.tracing.source.parsing import split_lines

MAX_PLACES, MAX_NAMES = 3, 5
"""The most lines that are named for one cost, and the most targets that were not compared."""
_DIFFERENT = "these are the costs of different calls"


@dataclass(frozen=True)
class CostComparison:
    """Hold the targets whose costs differ, and those with costs on one side alone: new ones, and those that could not
    be traced before or after the change.
    """

    changed: tuple[ChangedTarget, ...]
    one_sided: tuple[str, ...]


async def compare_costs(
    engine: Engine, scope: SurveyScope, reports: Sequence[FileReport], revision: str | None, progress: Progress
) -> CostComparison:
    """Trace the targets of a check again and compare the costs: with the texts of a revision in place of the changed
    files, or (None) with the interpreter of the engine. Raises UsageError as `changed_since`.
    """
    folders = (str(Path(source.file).parent) for source in scope.sources)
    changed = frozenset[str]() if revision is None else changed_since(revision, folders)
    texts = {} if revision is None else texts_at(revision, changed)
    there = [source for source in scope.sources if source.file in texts or source.file not in changed]
    before = _costs(await _again(engine, replace(scope, sources=there, texts=texts), reports, progress))
    after, moved = _costs(reports), _line_mover(texts)
    changes = (changed_target(target, before[target], after[target], moved) for target in after if target in before)
    return CostComparison(tuple(filter(None, changes)), tuple(sorted(before.keys() ^ after.keys())))


async def _again(
    engine: Engine, scope: SurveyScope, reports: Sequence[FileReport], progress: Progress
) -> list[FileReport]:
    """Return the reports on the targets of a check in other circumstances."""
    names = {report.file: frozenset(target.target.name for target in report.targets) for report in reports}
    sources = [replace(source, names=names.get(source.file, frozenset())) for source in scope.sources]
    again: list[FileReport] = []

    def hear(report: FileReport) -> None:
        again.append(report)
        progress.file()

    progress.restart("before: ", len(sources))
    await survey(engine, replace(scope, sources=sources), hear, progress)
    return again


def _costs(reports: Iterable[FileReport]) -> dict[str, TargetCosts]:
    """Return the costs of targets by id, of those that have any."""
    targets = (target for report in reports for target in report.targets)
    return {target.target.id: target.costs for target in targets if target.costs is not None}


def _line_mover(texts: Mapping[str, str]) -> Callable[[Place], Place | None]:
    """Return a function that maps a line before the change, in files with these texts, to the line that it is now."""

    @cache
    def lines(file: str) -> dict[int, int]:
        try:
            return lines_between(split_lines(texts[file]), split_lines(read_source(file)))
        except (OSError, SyntaxError, ValueError):
            return {}

    def moved(place: Place) -> Place | None:
        file, line = place
        now = lines(file).get(line) if file in texts else line
        return None if now is None else (file, now)

    return moved


def costs_text(comparison: CostComparison) -> str:
    """Return the costs that differ as lines, target by target; "" if none does."""
    lines: list[str] = []
    for target in comparison.changed:
        rows = [*_rows(target)]
        width = max(len(row[0]) for row in rows)
        lines.append(shown_path(target.target))
        lines += [
            f"  {title.ljust(width)}  {amounts}{f', at {places}' if places else ''}" for title, amounts, places in rows
        ]
    return "".join(f"{line}\n" for line in lines)


def costs_table(comparison: CostComparison) -> str:
    """Return the costs that differ as one table of Markdown, for a pull request; "" if none does."""
    if not comparison.changed:
        return ""
    lines = ["| target | cost | before → after | lines |", "| --- | --- | --- | --- |"]
    for target in comparison.changed:
        name = f"`{shown_path(target.target)}`"
        for title, amounts, places in _rows(target):
            lines.append(f"| {name} | {title} | {amounts.replace('|', chr(92) + '|')} | {places} |")
            name = ""
    return "".join(f"{line}\n" for line in lines)


def costs_data(comparison: CostComparison) -> dict[str, Any]:
    """Return the comparison as stable data for scripts: sizes in bytes; lines from 1, of the code before the change if
    they are `removed`.
    """
    return {
        "changed": [
            {
                "target": target.target,
                "inputs": {name: {"before": old, "after": new} for name, (old, new) in target.inputs.items()},
                "costs": [
                    {
                        "cost": change.cost,
                        "before": change.before,
                        "after": change.after,
                        "lines": [{"file": p.file, "line": p.line, "removed": p.is_removed} for p in change.places],
                    }
                    for change in target.changes
                ],
            }
            for target in comparison.changed
        ],
        "one_sided": list(comparison.one_sided),
    }


def note_text(comparison: CostComparison) -> str:
    """Return a line on the targets that were not compared; "" if all were."""
    names = ", ".join(map(shown_path, comparison.one_sided[:MAX_NAMES]))
    more = len(comparison.one_sided) - MAX_NAMES
    rest = f" and {more:,} more" if more > 0 else ""
    return f"no costs before or after the change, and so not compared: {names}{rest}\n" if names else ""


def _rows(target: ChangedTarget) -> Iterator[tuple[str, str, str]]:
    """Yield a title, the amounts and the lines for each cost that differs, and first for the inputs if they do."""
    if target.inputs:
        texts = (f"{name}: {before} → {after}" for name, (before, after) in target.inputs.items())
        yield "inputs", f"{'; '.join(texts)} ({_DIFFERENT})", ""
    for change in target.changes:
        places = [_place_text(place) for place in change.places[:MAX_PLACES]]
        more = len(change.places) - MAX_PLACES
        rest = f" and {count('more line', more, 'more lines')}" if more > 0 else ""
        yield COSTS[change.cost].title, change_text(change), ", ".join(places) + rest


def _place_text(place: CostPlace) -> str:
    shown = place_text(Span(place.file, place.line, 0, place.line, 0))
    return f"{shown} (removed)" if place.is_removed else shown
