"""Trace variants of a target for which its own trace had no time, and merge them into its outcome."""

from __future__ import annotations

from dataclasses import replace

from fx_lsp.messages.assumptions import VARIANT_FAILS
from fx_lsp.model import Failure, Outcome, TargetVariant, Trace, Unreached


def untried(outcome: Outcome) -> list[str]:
    """Return the variants of a target that were not run yet."""
    return [variant.name for variant in outcome.variants if not variant.inputs] if isinstance(outcome, Trace) else []


def with_variant_outcome(trace: Trace, name: str, outcome: Outcome) -> Trace:
    """Return a trace with the results of tracing one of its variants: its inputs, the values of code that only it
    reaches, and the problems of that code. The lines of both are those of one text.
    """
    if isinstance(outcome, Failure):
        wrong = outcome.severity != "information" and outcome.span is not None
        remark = VARIANT_FAILS.remark(outcome.span, severity=outcome.severity, problem=outcome.message, variant=name)
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
    """Return True if no unreached code of a trace contains `code`."""
    return not any(other.span.contains(code.span) for other in outcome.unreached)
