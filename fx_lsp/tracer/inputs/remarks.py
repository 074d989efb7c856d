"""Find problems in code that runs: sizes that only fit as guessed, broadcasts to all pairs, changes in place."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

from fx_lsp.messages.assumptions import ONLY_WORKS_UNLIKE_NAME, UNBATCHED
from fx_lsp.messages.findings import CHANGED_IN_PLACE, CHANGED_INPUT_IN_PLACE
from fx_lsp.model import Remark, Span
from fx_lsp.tracer.failures.exceptions import failure_of
from fx_lsp.tracer.inputs.candidate import Candidate
from fx_lsp.tracer.inputs.construct import INIT
from fx_lsp.tracer.inputs.evidence.gradients import runs_without_gradients
from fx_lsp.tracer.inputs.evidence.named_numbers import met_halfway, unlike_docstring, with_named_sizes
from fx_lsp.tracer.inputs.flags import flags, open_options
from fx_lsp.tracer.inputs.plan.plans import (
    Plans,
    ValuePlan,
    has_made_up_values,
)
from fx_lsp.tracer.inputs.solve.attempt import Attempt, is_of_sizes, place_of
from fx_lsp.tracer.inputs.solve.forced import dimension_names, forced, name_of
from fx_lsp.tracer.inputs.solve.path_conditions import Dimension, Exploration
from fx_lsp.tracer.inputs.solve.solver import Sizes, with_sizes
from fx_lsp.tracer.inputs.solve.trail import odd_narrowings
from fx_lsp.tracer.inputs.solve.verdict import DeadEnd, are_tensors_or_numbers, verdict
from fx_lsp.tracer.run.branches import unreached
from fx_lsp.tracer.run.call import tensors_in
from fx_lsp.tracer.run.in_place import overwritten, trains
from fx_lsp.tracer.source.expressions import shown_expression

MAX_CALLS_RETRACED = 500
"""The most torch calls of a run that is repeated on symbols to find its requirements on sizes."""
MAX_FLAGS = 4
"""The most other values of flags that are tried to lift a requirement."""


def remarks_of(
    candidate: Candidate, ran: Attempt, failures: Sequence[Attempt], demanding: bool = True
) -> tuple[Remark, ...]:
    """Return remarks on code that runs: the findings of checks and, if `demanding`, implausible requirements on sizes.

    `failures` are earlier attempts.
    """
    demands = (demands_of(candidate, ran) if demanding else []) or list(_unbatched(candidate, ran, failures))
    is_guessed = any(plan.is_guess for _, plan in ran.plans.tensors())
    of_shapes = () if is_guessed else ran.run.findings_of_shapes
    name, is_module = candidate.subject.definition.rpartition(".")[2], bool(candidate.bound.modules)
    is_off = not is_module and runs_without_gradients(candidate.task.tree, name)
    writes = () if is_off else _overwritten(ran)
    return (*ran.run.findings, *of_shapes, *writes, *demands)


def _overwritten(ran: Attempt) -> Iterator[Remark]:
    """Yield remarks on values that are saved for backward and changed in place before, which makes backward fail."""
    outputs = [tensor for _, tensor in tensors_in(ran.run.result, "")]
    for write in overwritten(outputs, ran.run.writes):
        is_of_input = not write.trains and trains(output.grad_fn for output in outputs)
        template, severity = (CHANGED_INPUT_IN_PLACE, "information") if is_of_input else (CHANGED_IN_PLACE, "warning")
        severity = "error" if write.trains else severity
        yield template.remark(write.chain[0], severity=severity, operation=write.saved_by.lower())


def _unbatched(candidate: Candidate, ran: Attempt, failures: Sequence[Attempt]) -> Iterator[Remark]:
    """Yield remarks on layers that treat their input as an unbatched example, if its rank was guessed; or on code that
    no batch passes.
    """
    guessed = any(plan.is_guess and not plan.rank_known for _, plan in ran.plans.tensors())
    chains = [chain for chain in dict.fromkeys(ran.run.unbatched if guessed else ()) if chain]
    batches = [attempt for attempt in failures if not attempt.run.unbatched] if chains else []
    explore = partial(candidate.explore, whole=True)
    mistake = verdict(DeadEnd(batches, candidate.evaluate, explore))
    if mistake is not None and (error := mistake.attempt.run.error) is not None:
        wrong = mistake.attempt
        failure = failure_of(error, wrong.sources, wrong.run.failed, wrong.lines, "warning")
        yield Remark(failure.message, failure.span, "warning")
        return
    for chain in chains:
        yield UNBATCHED.remark(chain[0], code=shown_expression(chain[0], candidate.task.lines))


def demands_of(candidate: Candidate, ran: Attempt) -> list[Remark]:
    """Return the requirements on sizes that an attempt only met because of guesses."""
    if ran.plans not in candidate.demands:
        told, file = _retraced_demands(candidate, ran), candidate.task.request.file
        candidate.demands[ran.plans] = [r for r in told if r.span is not None and r.span.file == file]
    return candidate.demands[ran.plans]


def _retraced_demands(candidate: Candidate, ran: Attempt) -> list[Remark]:
    task, init = candidate.task, candidate.constructed.plans
    guessed = any(plan.is_guess for _, plan in ran.plans.tensors())
    if not guessed or ran.run.calls > MAX_CALLS_RETRACED or task.request.work or not are_tensors_or_numbers(ran):
        return []
    guesses = _guesses(ran.plans.init or init)
    if has_made_up_values(ran.plans) or any(isinstance(guess, list | tuple) for guess in guesses):
        return []  # a made-up number, and one in a guessed list, would look like a constant of the code
    stand_ins, names = list(filter(callable, guesses)), dimension_names(candidate.node)
    odd = next(odd_narrowings(ran, candidate.evaluate, candidate.facts, names, stand_ins), None)
    if (telling := odd or _unlike_its_name(candidate, ran)) is not None:
        return [telling]
    exploration = candidate.explore(ran.plans, whole=True, chains=True)
    ends_alike = exploration.attempt.run.error is None if ran.run.error is None else exploration.ends_like(ran)
    if not ends_alike:
        return []

    exploration = _without(stand_ins, exploration)

    def again(sizes: Sizes) -> Attempt:
        other = with_sizes(init, exploration, sizes, INIT)
        return candidate.evaluate(with_sizes(ran.plans, exploration, sizes), other)

    def lifted(sizes: Sizes) -> bool:
        if unreached(task.tree, task.request.file, ran.run.coverage) or open_options(candidate, init):
            return True
        others = (flag.plans for flag in islice(flags(candidate, ran.plans, ()), MAX_FLAGS))
        inits = ((plans, plans.init or init) for plans in others)
        return any(
            candidate.evaluate(
                with_sizes(plans, exploration, sizes), with_sizes(made_with, exploration, sizes, INIT)
            ).run.error
            is None
            for plans, made_with in inits
        )

    return forced(exploration, candidate.node, again, lifted, set(_known_sizes(candidate, ran)))


def _guesses(init: Plans) -> list[object]:
    """Return the guessed values among the arguments of a constructor, other than tensors."""
    return [plan.make() for _, plan in init.items if isinstance(plan, ValuePlan) and plan.is_guess]


def _without(stand_ins: Sequence[object], exploration: Exploration) -> Exploration:
    """Return the run on symbols without what guessed functions themselves require."""
    of_code = [c for c in exploration.conditions if not any(c.function is function for function in stand_ins)]
    return dataclasses.replace(exploration, conditions=of_code)


def _known_sizes(candidate: Candidate, ran: Attempt) -> Iterator[tuple[str, int]]:
    """Yield the dimensions, by path and index, that have the sizes that layers require."""
    for path, plan in ran.plans.tensors():
        name, _, is_item = path.partition("[")
        facts = candidate.facts.get(name)
        sizes, facts = plan.spec.sizes, facts.element if facts is not None and is_item else facts
        for index, size in facts.sizes.items() if facts is not None else ():
            if -len(sizes) <= index < len(sizes) and sizes[index] == size:
                yield path, index % len(sizes)


def _unlike_its_name(candidate: Candidate, ran: Attempt) -> Remark | None:
    """Return a remark on code that only runs if an input has another size than the number named after it, or None."""
    sizes = {path: plan.spec.sizes for path, plan in ran.plans.tensors()}
    batches = {(shape[0],) for shape in sizes.values() if len(shape) > 1}  # a vector of such a size has no width
    unmet = (named for named in candidate.named_sizes if not named.is_met(sizes.get(named.path, ())))
    others = [named for named in unmet if sizes[named.path] not in batches]
    others = others or unlike_docstring(ran.plans, candidate.facts)
    if not others:
        return None
    attempt = candidate.evaluate(with_named_sizes(ran.plans, others))
    span = place_of(attempt)
    if attempt.run.error is None or not is_of_sizes(attempt) or not isinstance(span, Span):
        return None
    if candidate.evaluate(with_named_sizes(ran.plans, met_halfway(ran.plans, others))).run.error is None:
        return None
    first, names = others[0], dimension_names(candidate.node)
    rank = len(sizes[first.path])
    dimension = name_of(Dimension(first.path, first.index % rank, rank), names)
    return ONLY_WORKS_UNLIKE_NAME.remark(
        span,
        code=shown_expression(span, candidate.task.lines),
        dimension=dimension,
        size=sizes[first.path][first.index],
        name=first.name,
        number=first.size,
    )
