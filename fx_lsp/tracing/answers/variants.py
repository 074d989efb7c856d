"""Variants of a target that its own trace had no time to run: traced afterwards, and added to what is shown of it."""

from __future__ import annotations

from dataclasses import replace

from fx_lsp.model import Failure, Outcome, Remark, TargetVariant, Trace, Unreached


def untried(outcome: Outcome) -> list[str]:
    """Return the variants of a target that are known by name alone."""
    return [variant.name for variant in outcome.variants if not variant.inputs] if isinstance(outcome, Trace) else []


def with_variant_outcome(trace: Trace, name: str, outcome: Outcome) -> Trace:
    """Return a trace with what tracing one of its variants gave: its inputs, the values of code that it alone reaches,
    and what is wrong with that code. The lines of both are those of one text."""
    if isinstance(outcome, Failure):
        wrong = outcome.severity != "information" and outcome.span is not None
        remark = Remark(f"{outcome.message}, with {name}", outcome.span, outcome.severity)
        return replace(trace, remarks=(*trace.remarks, remark)) if wrong else trace
    reached = [code for code in trace.unreached if _reaches(outcome, code)]
    values = tuple(v for v in outcome.values if any(code.span.contains(v.span) for code in reached))
    return replace(
        trace,
        variants=tuple(TargetVariant(name, outcome.inputs, values) if v.name == name else v for v in trace.variants),
        unreached=tuple(
            replace(code, variants=(*code.variants, name)) if code in reached else code for code in trace.unreached
        ),
    )


def _reaches(outcome: Trace, code: Unreached) -> bool:
    """Return True if nothing that a trace did not reach is around code."""
    return not any(other.span.contains(code.span) for other in outcome.unreached)
