"""Turn the result of a search into a call that can be captured: symbols for named sizes and for tensors' values."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from fx_lsp.tracer.failures.exceptions import kind_of, sentence
from fx_lsp.tracer.inputs.plan.plans import Plan, Plans, TensorPlan
from fx_lsp.tracer.inputs.search import Found, Search, run_search
from fx_lsp.tracer.inputs.solve.attempt import Attempt, Evaluate, attempt
from fx_lsp.tracer.inputs.solve.operands import of_other_sizes
from fx_lsp.tracer.inputs.solve.path_conditions import CallOf
from fx_lsp.tracer.inputs.solve.short_loops import with_few_steps
from fx_lsp.tracer.inputs.task import Task
from fx_lsp.tracer.run.call import Call
from fx_lsp.tracer.run.conditions import Conditions, under
from fx_lsp.tracer.run.values.symbols import Symbols
from fx_lsp.tracer.source.names import assigned_names

MAX_HINTS = 16
"""The most other numbers that are tried for named sizes if the target does not run."""
MAX_CREATED = 4
"""The most parameters in a note on those created by a first call."""

DRAWN = "traced with random values: the code needs the values of tensors"


@dataclass
class Settled:
    """Hold a call that ran once under `conditions`; `otherwise` returns one under others, if it runs under
    those, too.
    """

    attempt: Attempt
    call: Call
    conditions: Conditions = field(default_factory=Conditions)
    notes: list[str] = field(default_factory=list[str])
    otherwise: Callable[[], Settled | None] = lambda: None


def settle(
    task: Task, result: Found, named: Mapping[str, int], call_of: CallOf, alternatives: dict[str, list[Plan]]
) -> Settled | None:
    """Return the call to capture after a search; None if the target does not run.

    Named sizes become symbols. Parameters that only a call creates are created first. Code that needs the values of
    tensors is tried with symbols in their place, then as if compiled, then with random values, once for each target.
    """
    trial = _Trial(task, call_of, alternatives)
    best, hints = result.best, dict(named)
    if best.run.error is not None and named:
        best, hints = _with_other_hints(trial, best, hints)
    if best.run.error is None:
        best, first = _after_first_call(trial, best, hints) if best.created else (best, list[str]())
        notes = [*first, *(f"{name} was traced as {size}" for name, size in hints.items())]
        plain = Settled(best, call_of(best.plans, hints)[0], notes=notes)
        return (_with_symbols(trial, best, hints, plain, first) if named else None) or plain
    if kind_of(best.run.error, best.run.failed) != "data-dependent" or task.retried:
        return None
    task.retried = True
    for compiling in (False, True):
        settled, tried = _without_values(trial, best, hints, compiling)
        if settled is not None:
            return dataclasses.replace(settled, otherwise=lambda: _with_drawn_values(trial, best, hints))
        error, further = tried.run.error, tried.run.calls > result.best.run.calls
        if error is not None and further and kind_of(error, tried.run.failed) == "data-dependent":
            result.best = tried  # the reason is the value that no symbol can replace, not the first value needed
    return _with_drawn_values(trial, best, hints)


@dataclass
class _Trial:
    task: Task
    call_of: CallOf
    alternatives: dict[str, list[Plan]]

    def plain(self, plans: Plans, hints: Mapping[str, int]) -> Attempt:
        """Run once, observed, with numbers in place of named sizes."""
        return attempt(self.task, plans, self.alternatives, lambda: self.call_of(plans, hints))

    def symbolic(
        self, plans: Plans, hints: Mapping[str, int], unbacked: bool = False, compiling: bool = False
    ) -> tuple[Attempt, Symbols]:
        """Run once, observed, with fresh symbols."""
        symbols = self.symbols(unbacked)
        conditions = Conditions(symbols, compiling)
        with under(self.task.mode, conditions):
            sizes = symbols.sizes(hints)
            tried = attempt(self.task, plans, self.alternatives, lambda: self.call_of(plans, sizes))
        return dataclasses.replace(tried, conditions=conditions), symbols

    def settled(
        self, tried: Attempt, hints: Mapping[str, int], unbacked: bool, compiling: bool, notes: list[str]
    ) -> Settled:
        """Return the call of a successful symbolic run, with fresh, unconstrained symbols."""
        conditions = Conditions(self.symbols(unbacked), compiling)
        assert conditions.symbols is not None
        with under(self.task.mode, conditions):
            call = self.call_of(tried.plans, conditions.symbols.sizes(hints))[0]
        return Settled(tried, call, conditions, notes)

    def searched(self, start: Plans, evaluate: Evaluate) -> Attempt:
        """Return the best attempt of a search from `start` on, with the rest of the work."""
        budget = self.task.budget.part(self.task.seconds)
        return run_search(Search(start, partial(with_few_steps, evaluate), budget)).best

    def symbols(self, unbacked: bool) -> Symbols:
        """Return fresh symbols."""
        assigned = assigned_names(self.task.tree, self.task.sources.file)
        return Symbols(self.task.sources, self.task.lines, assigned, unbacked)


def _after_first_call(trial: _Trial, best: Attempt, hints: dict[str, int]) -> tuple[Attempt, list[str]]:
    """Return the run after a first one whose created parameters are kept, and a note on them."""
    with suppress(Exception):
        trial.call_of(best.plans, hints)[0].run_for_good()
        again = trial.plain(best.plans, hints)
        if again.run.error is None:
            named = ", ".join(best.created[:MAX_CREATED]) + (", …" if len(best.created) > MAX_CREATED else "")
            return again, [f"traced after a first call, which creates {named}"]
    return best, []


def _with_symbols(
    trial: _Trial, best: Attempt, hints: dict[str, int], plain: Settled, notes: list[str]
) -> Settled | None:
    tried, symbols = trial.symbolic(best.plans, hints)
    if tried.run.error is not None:
        plain.notes.append(f"named sizes are replaced by numbers, because with symbols {sentence(tried.run.error)}")
        return None
    fixed = _fixed(symbols, hints)
    if fixed and (wider := _named_as_well(best.plans, {hints[name]: name for name in fixed})) != best.plans:
        again, symbols = trial.symbolic(wider, hints)
        if again.run.error is None and len(_fixed(symbols, hints)) < len(fixed):
            tried = again
    return dataclasses.replace(trial.settled(tried, hints, False, False, notes), otherwise=lambda: plain)


def _fixed(symbols: Symbols, hints: Mapping[str, int]) -> list[str]:
    return [name for name in hints if symbols.value_of(name).isdigit()]


def _named_as_well(plans: Plans, names: Mapping[int, str]) -> Plans:
    """Return the plans with a name for guessed sizes that equal the name's number."""

    def change(path: str, plan: TensorPlan) -> TensorPlan:
        if not plan.is_guess or plan.spec.strides is not None:
            return plan
        sizes = tuple(names.get(s, s) if isinstance(s, int) else s for s in plan.spec.sizes)
        return dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, sizes=sizes))

    return plans.map_tensors(change)


def _with_other_hints(trial: _Trial, best: Attempt, hints: dict[str, int]) -> tuple[Attempt, dict[str, int]]:
    """Return the furthest run with other numbers for named sizes, from the error or the code, and those numbers."""
    tried = {tuple(hints.values())}
    while best.run.error is not None:
        candidates = ({**hints, name: number} for number in _numbers(trial.task, best) for name in hints)
        for other in candidates:
            if tuple(other.values()) in tried:
                continue
            tried.add(tuple(other.values()))
            if len(tried) > MAX_HINTS or trial.task.budget.is_spent:
                return best, hints
            result = trial.plain(best.plans, other)
            if result.run.error is None or result.run.calls > best.run.calls:
                best, hints = result, other
                break
        else:
            break
    return best, hints


def _numbers(task: Task, failed: Attempt) -> Iterator[int]:
    chain = failed.sources.traceback_chain(failed.run.error.__traceback__ if failed.run.error else None)
    lines = [n for span in chain if span.file == task.sources.file for n in range(span.line, span.end_line + 1)]
    changes = of_other_sizes(failed.question) if failed.question is not None else ()
    asked = [size for change in changes for size in change.shape]
    written = [
        node.value
        for node in ast.walk(task.tree)
        if isinstance(node, ast.Constant) and type(node.value) is int and node.lineno in lines
    ]
    yield from (n for n in dict.fromkeys([*asked, *written, 64, 12]) if 1 < n <= 4096)


def _without_values(
    trial: _Trial, best: Attempt, hints: dict[str, int], compiling: bool
) -> tuple[Settled | None, Attempt]:
    """Return the call with symbols in place of values, or None if it does not run, and its furthest run."""
    symbols: Symbols | None = None

    def evaluate(plans: Plans) -> Attempt:
        nonlocal symbols
        tried, symbols = trial.symbolic(plans, hints, True, compiling)
        return tried

    assert best.run.error is not None
    tried = evaluate(best.plans)
    if tried.run.error is not None and kind_of(tried.run.error, tried.run.failed) != "data-dependent":
        tried = trial.searched(best.plans, evaluate)
    if tried.run.error is not None:
        return None, tried
    notes: list[str] = []
    if symbols is not None and symbols.has_unknown:
        notes.append("numbers and sizes that depend on the values of tensors are shown as names")
    if compiling:
        notes.append(
            "traced as if compiling (`torch.compiler.is_compiling()` is true); otherwise the code needs tensor values"
        )
    return trial.settled(tried, hints, True, compiling, notes), tried


def _with_drawn_values(trial: _Trial, best: Attempt, hints: dict[str, int]) -> Settled | None:
    """Return the call with random values for all tensors, or None if it does not run."""
    conditions = Conditions(drawn=True)

    def evaluate(plans: Plans) -> Attempt:
        with under(trial.task.mode, conditions):
            return dataclasses.replace(trial.plain(plans, hints), conditions=conditions)

    tried = evaluate(best.plans)
    if tried.run.error is not None and kind_of(tried.run.error, tried.run.failed) != "data-dependent":
        tried = trial.searched(tried.plans, evaluate)
    if tried.run.error is not None:
        return None
    with under(trial.task.mode, conditions):
        call = trial.call_of(tried.plans, hints)[0]
    return Settled(tried, call, conditions, [DRAWN])
