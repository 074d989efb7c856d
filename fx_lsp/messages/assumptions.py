"""Remarks without a code: requirements on sizes, and assumptions of a trace on values and branches."""

from __future__ import annotations

from fx_lsp.messages.template import RemarkTemplate

ONLY_WHEN = RemarkTemplate(None, "`{code}` only {verb} when {condition}")
ONLY_WHEN_UNMET = RemarkTemplate(
    None, "`{code}` only {verb} when {condition}. Is a dimension missing or swapped?", "warning"
)
ONLY_WORKS_WITH_SIZE = RemarkTemplate(None, "`{code}` only works when {dimension} == {size}", "warning")
ONLY_WORKS_UNLIKE_NAME = RemarkTemplate(
    None, "`{code}` only works when {dimension} == {size}, but {name} is {number}", "warning"
)
UNBATCHED = RemarkTemplate(
    None, "`{code}` only works with an unbatched example: its input has no batch dimension", "warning"
)
VALID_WHEN = RemarkTemplate(None, "the trace is only valid when {condition}{reason}")
BECOMES = RemarkTemplate(None, "{name} becomes {number} {place}{reason}")
EQUALS = RemarkTemplate(None, "{name} equals {size} {place}{reason}")
NEEDS_NUMBER = "`{code}` needs a concrete number"
CHECKS = "the code checks `{code}`"
"""The reasons for a requirement on a size."""

# An error with stated inputs, a warning with guessed ones.
ANNOTATED_DTYPE = RemarkTemplate(None, "{name} is {spec}, but its annotated dtype is {dtype}", "error")
ANNOTATED_LENGTH = RemarkTemplate(None, "{name} has {length} elements, but its annotation has {annotated}", "error")
ANNOTATED_RANK = RemarkTemplate(
    None, '{name} is {spec}: it has {dimensions}, but "{annotation}" has {annotated}', "error"
)
ANNOTATED_SIZES = RemarkTemplate(None, '{name} is {spec}, but its annotation is "{annotation}": {reason}', "error")

VALUE_ASSUMED = RemarkTemplate(None, "the value of `{code}` is assumed: {reason}")
HIDDEN_VALUE_ASSUMED = RemarkTemplate(None, "a value that the code needs here is assumed: {reason}")
RANDOM_VALUES = RemarkTemplate(None, "{reason}; the trace continues with random values.{fix}")

_WHY = "it depends on a tensor's value, and torch.compile breaks the graph here"
CHECK_PASSES = RemarkTemplate(None, "the trace assumes that the check `{test}`{file} passes")
LOOP_ENDS = RemarkTemplate(None, "the trace runs the loop to its end: `{test}`{file} may end it earlier")
TEST_HOLDS = RemarkTemplate(None, f"the trace assumes that `{{test}}`{{file}} is true: {_WHY}")
TEST_FAILS = RemarkTemplate(None, f"the trace assumes that `{{test}}`{{file}} is false: {_WHY}")
TWO_ITERATIONS = RemarkTemplate(
    None, f"the trace runs two iterations of the loop, however long `{{test}}`{{file}} is true: {_WHY}"
)
LEAVES_SECOND_ITERATION = RemarkTemplate(
    None, f"the trace leaves the loop in its second iteration, at `{{test}}`{{file}}: {_WHY}"
)

IN_VARIANT = RemarkTemplate(None, "with {variant}: {problem}")
VARIANT_FAILS = RemarkTemplate(None, "{problem}, with {variant}")
