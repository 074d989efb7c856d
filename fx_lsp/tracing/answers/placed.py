"""Store the answers on the targets of one file, at the current lines of their text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fx_lsp.model import Failure, InputSpec, Outcome, Remark, Stage, Trace
from fx_lsp.tracing.answers.disk import UNKNOWN, CachedTrace
from fx_lsp.tracing.answers.question import TargetQuestion
from fx_lsp.tracing.answers.relocation import line_map, relocate_outcome, relocate_stage
from fx_lsp.tracing.answers.variants import untried, with_variant_outcome

MAX_NODES_AT_ONCE = 10_000
"""The largest stage, in nodes, whose spans are moved without a thread."""


@dataclass(frozen=True)
class PlacedAnswer:
    """Hold the newest answer to a question, with `outcome` at its positions in `text`.

    `key` is "" once a dependency of the answer has changed. `moved` maps the answer's own lines to those of `text`;
    None if they are the same.
    """

    key: str
    text: str
    answer: CachedTrace
    outcome: Outcome
    moved: Mapping[int, int] | None
    seconds: float | None


@dataclass(frozen=True)
class TargetText:
    """Hold a text, and the lines in it whose positions move with a target."""

    text: str
    lines: Sequence[int]


class PlacedAnswers:
    """Hold the newest answers on the targets of a file, by question, for any of its texts.

    `inputs` are those of the last trace of each target.
    """

    def __init__(self, file: str) -> None:
        self.inputs: dict[str, tuple[InputSpec, ...]] = {}
        self._file = file
        self._answers: dict[TargetQuestion, PlacedAnswer] = {}
        self._stages: dict[tuple[str, str], tuple[str, Stage]] = {}

    def __iter__(self) -> Iterator[TargetQuestion]:
        return iter(self._answers)

    def get(self, question: TargetQuestion) -> PlacedAnswer | None:
        """Return the newest answer to a question."""
        return self._answers.get(question)

    def put(
        self, question: TargetQuestion, key: str, answer: CachedTrace, now: TargetText, seconds: float | None = None
    ) -> None:
        """Store an answer for the text as it is now; `seconds` is the time of a new trace."""
        moved = None if now.lines == answer.lines else dict(zip(answer.lines, now.lines, strict=False))
        outcome = answer.outcome if moved is None else relocate_outcome(answer.outcome, self._file, moved)
        before = self._answers.get(question)
        if seconds is None and before is not None and before.key == key:
            seconds = before.seconds
        self._answers[question] = PlacedAnswer(key, now.text, answer, outcome, moved, seconds)
        self._stages = {k: v for k, v in self._stages.items() if k[0] != key}
        if isinstance(outcome, Trace) and not question.variant:
            self.inputs[question.target] = outcome.inputs

    def current_keys(self) -> set[str]:
        """Return the keys of the answers that are current."""
        return {placed.key for placed in self._answers.values()}

    def drop(self, question: TargetQuestion) -> bool:
        """Remove an answer; return True if there was one."""
        return self._answers.pop(question, None) is not None

    def drop_others(self, targets: Mapping[str, object]) -> None:
        """Remove the answers on targets that no longer exist."""
        self._answers = {question: placed for question, placed in self._answers.items() if question.target in targets}

    def clear(self) -> None:
        """Forget every answer."""
        self._answers.clear()

    def mark_old(self, question: TargetQuestion, key: str) -> None:
        """Record that the answer under `key` is outdated, because a dependency has changed."""
        placed = self._answers.get(question)
        if placed is not None and placed.key == key:
            self._answers[question] = replace(placed, key="")

    def dependencies(self) -> set[str]:
        """Return the other files that the answers depend on."""
        return {dependency.path for placed in self._answers.values() for dependency in placed.answer.dependencies}

    def changing(self, question: TargetQuestion) -> set[str]:
        """Return the files that changed while the newest answer to a question was computed."""
        placed = self._answers.get(question)
        return {d.path for d in placed.answer.dependencies if d.digest == UNKNOWN} if placed is not None else set()

    def failed_imports(self) -> list[str]:
        """Return the keys of targets whose imports failed, which a new file or package may repair."""
        failed = ((p.key, p.answer.outcome) for p in self._answers.values())
        return [key for key, outcome in failed if isinstance(outcome, Failure) and outcome.kind == "import" and key]

    def remarks(self, file: str) -> list[Remark]:
        """Return the remarks in `file` from work with the targets."""
        outcomes = [placed.outcome for question, placed in self._answers.items() if question.work]
        remarks = (remark for outcome in outcomes if isinstance(outcome, Trace) for remark in outcome.remarks)
        return [remark for remark in remarks if remark.span is not None and remark.span.file == file]

    def outcome(self, target: str, text: str) -> Outcome | None:
        """Return the outcome of a target with its variants, at its positions in `text`, or None."""
        question = TargetQuestion(target)
        placed = self._answers.get(question)
        if placed is None:
            return None
        outcome = placed.outcome
        for variant in untried(outcome):
            asked = question.of_variant(variant)
            answer = self._answers.get(asked)
            about = asked.key(placed.key, ()), placed.text
            if answer is not None and (answer.key, answer.text) == about and isinstance(outcome, Trace):
                outcome = with_variant_outcome(outcome, variant, answer.outcome)
        mapping = line_map(placed.text, text)
        return outcome if mapping is None else relocate_outcome(outcome, self._file, mapping)

    def stage_now(self, question: TargetQuestion, stage: Stage, text: str) -> Stage | None:
        """Return a decoded stage of the answer to a question, at its positions in `text`; None for a large one that has
        not been moved there yet.
        """
        placed = self._answers[question]
        present = self._stages.get((placed.key, stage.name))
        if present and present[0] == text:
            return present[1]
        mappings = _mappings(placed, text)
        if mappings and len(stage.nodes) > MAX_NODES_AT_ONCE:
            return None
        return self._keep(placed, self._moved(stage, mappings), text)

    async def stage(self, question: TargetQuestion, stage: Stage, text: str) -> Stage:
        """Return a decoded stage of the answer to a question, at its positions in `text`."""
        present = self.stage_now(question, stage, text)
        if present is not None:
            return present
        placed = self._answers[question]
        moved = await asyncio.to_thread(self._moved, stage, _mappings(placed, text))
        return self._keep(placed, moved, text)

    def _moved(self, stage: Stage, mappings: Sequence[Mapping[int, int]]) -> Stage:
        for mapping in mappings:
            stage = relocate_stage(stage, self._file, mapping)
        return stage

    def _keep(self, placed: PlacedAnswer, stage: Stage, text: str) -> Stage:
        self._stages = {k: v for k, v in self._stages.items() if v[0] == text}
        self._stages[placed.key, stage.name] = text, stage
        return stage


def _mappings(placed: PlacedAnswer, text: str) -> list[Mapping[int, int]]:
    """Return how the lines of an answer move to those of `text`, one step after the other."""
    return [mapping for mapping in (placed.moved, line_map(placed.text, text)) if mapping is not None]
