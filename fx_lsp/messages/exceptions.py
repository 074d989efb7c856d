"""Failures of the user's code: exceptions that a trace causes, and uses of values that it does not have."""

from __future__ import annotations

from fx_lsp.messages.template import FailureTemplate

_MOVE_IT = "Move it out of the traced function, or pass the value that it computes as an argument."
EXITS = FailureTemplate(
    "exit",
    "the code exits the process (sys.exit({code!r}))",
    'Raise an exception instead; at the top level, move the call under `if __name__ == "__main__":`.',
)
HAS_EFFECT = FailureTemplate("effect", "the code {effect}; tracing does not allow such side effects", _MOVE_IT)
STARTS_PROGRAM = FailureTemplate(
    "effect",
    "the code starts the program {program!r}; traced code starts only those that the setting `fx-lsp.limits.programs` "
    "or `--allow-program` names",
    _MOVE_IT,
)
NOT_ALLOWED_FILE = FailureTemplate(
    "error",
    "the code opens {file!r}; traced code reads only the project and the interpreter, writes only temporary files, and "
    "reads what the setting `fx-lsp.limits.read` or `--allow-read` names",
)
OUT_OF_MEMORY = FailureTemplate(
    "memory",
    "the code needs more memory here than a trace is allowed to use",
    "Write smaller inputs in a `# fx:` comment, or raise the setting `fx-lsp.limits.memory`.",
)
READS_FILE = FailureTemplate("error", "the code reads {file!r}: {error}")
READS_STANDARD_INPUT = FailureTemplate("error", "the code reads standard input, which is empty while tracing")
NOT_ON_FAKE_TENSORS = FailureTemplate(
    "unsupported", "PyTorch cannot run this on fake tensors, and a trace only has fake tensors", _MOVE_IT
)
NO_FAKE_KERNEL = FailureTemplate(
    "unsupported",
    "the operator `{operator}` has no fake kernel, so a trace cannot know the shape and dtype of its result",
    'Add `@torch.library.register_fake("{operator}")` to `def _({parameters}): {body}`, '
    "which returns tensors with the shapes and dtypes of the operator's results.",
)
RAISED_ELSEWHERE = FailureTemplate("error", "{error}, raised in {file}:{line}")
OVERWRITTEN = FailureTemplate(
    "error",
    "backward needs {value} as the forward pass read it, but `{change}` in {place} has changed it in place since",
    "Call `backward()` before what changes the value, or compute the forward pass again.",
)
WHILE_IMPORTED = FailureTemplate("import", "{error} (while importing the file)")
GUESSED_INPUTS = "The inputs are guessed; write the real ones in a comment: `# fx: {comment}`."
"""The fix for exceptions that other inputs may not cause."""

# The code needs the value of a tensor: the clauses say for what.
NO_VALUES = "a trace has shapes but no values"
NEEDS_VALUE = FailureTemplate(
    "data-dependent",
    f"the code needs the value of a tensor here, and {NO_VALUES}",
    "Branch on shapes instead, use `torch.where`, or move this part out of the traced function.",
)
NEEDS_VALUE_OF_OPERATION = FailureTemplate(
    "data-dependent", f"the code needs the value of a tensor here (`{{operation}}`), and {NO_VALUES}", NEEDS_VALUE.hint
)
NEEDS_VALUE_FOR = FailureTemplate("data-dependent", f"{{need}}, and {NO_VALUES}")

_COUNT = "Use a fixed number of iterations, or pass the number as an argument."
_ARGUMENT = "Keep it a tensor, or pass the numbers as an argument."
_SIZE = "Pass the number as an argument, or keep the full size and mask the unused elements."
_MASK = "Keep the shape and mask instead: `torch.where(mask, x, 0)` or `x.masked_fill(~mask, 0)`."

BRANCHES = FailureTemplate(
    "data-dependent",
    "`{code}` branches on a tensor's value",
    "Use `torch.where` (both sides are computed) or `torch.cond`, or branch on shapes.",
)
LOOPS_WHILE = FailureTemplate(
    "data-dependent",
    "`while {test}:` loops depending on a tensor's value",
    "Loop a fixed number of times and use `torch.where` to leave finished elements unchanged.",
)
ASSERTS_VALUE = FailureTemplate(
    "data-dependent",
    "`assert {test}` checks a tensor's value",
    "Check it outside of the traced function, or with `torch._assert_async`.",
)
ITERATES = FailureTemplate(
    "data-dependent", "`{loop}` runs a number of iterations that depends on a tensor's value", _COUNT
)
COUNTS = FailureTemplate("data-dependent", "`{code}` counts up to a tensor's value", _COUNT)
UNPACKS_VALUES = FailureTemplate("data-dependent", "`{code}` unpacks a tensor's values", _ARGUMENT)
TO_NUMBER = FailureTemplate("data-dependent", "`{code}` turns a tensor into a Python number", _ARGUMENT)
TO_NUMBER_THAT_DECIDES = FailureTemplate(
    "data-dependent", "`{code}` turns a tensor into a Python number: {decision}", "{fix}"
)
TO_NUMBER_AS_SIZE = FailureTemplate(
    "data-dependent", "`{code}` turns a tensor into a Python number, used as a size in `{user}`", _SIZE
)
TO_NUMBER_IN_ARITHMETIC = FailureTemplate(
    "data-dependent",
    "`{code}` turns a tensor into a Python number, used in `{user}`",
    "Keep it a tensor: arithmetic also works with one-element tensors.",
)
TO_NUMBERS = FailureTemplate("data-dependent", "`{code}` turns a tensor into Python numbers", _ARGUMENT)
BOUND_OF_SLICE = FailureTemplate("data-dependent", "`{code}` uses a tensor as the bound of a slice", _SIZE)
INTEGER_INDEX = FailureTemplate(
    "data-dependent",
    "`{code}` uses a tensor as an integer index",
    "Use `index_select` with a one-element index tensor.",
)
COMPARES_VALUES = FailureTemplate(
    "data-dependent", "`{code}` compares the values of tensors", "{instead}: the result stays a tensor."
)

# The values of `subject` decide the size of a result.
ROW_PER_NONZERO = FailureTemplate(
    "data-dependent", "`{code}` has one row for each nonzero element of `{subject}`{loop}", _MASK
)
ROW_PER_TRUE = FailureTemplate("data-dependent", "`{code}` has one row for each true element of `{subject}`", _MASK)
ELEMENT_PER_TRUE = FailureTemplate(
    "data-dependent", "`{code}` has one element for each true element of `{subject}`{loop}", _MASK
)
ELEMENT_PER_TRUE_OF_MASK = FailureTemplate(
    "data-dependent", "`{code}` has one element for each true element of its mask{loop}", _MASK
)
ELEMENT_PER_DISTINCT_VALUE = FailureTemplate(
    "data-dependent", "`{code}` has one element for each distinct value of `{subject}`{loop}", _ARGUMENT
)
ELEMENT_PER_RUN = FailureTemplate(
    "data-dependent", "`{code}` has one element for each run of equal values in `{subject}`{loop}", _ARGUMENT
)
AS_LONG_AS_REPEATS = FailureTemplate(
    "data-dependent",
    "`{code}` is as long as the sum of the repeats{loop}",
    "Pass `output_size=` and the repeats as an argument.",
)
AS_LONG_AS_LARGEST_VALUE = FailureTemplate(
    "data-dependent",
    "`{code}` is as long as the largest value of `{subject}`{loop}",
    "Use `scatter_add` into a tensor of fixed size.",
)

FIXES = {t.kind: t.hint for t in (EXITS, HAS_EFFECT, OUT_OF_MEMORY, NOT_ON_FAKE_TENSORS, NEEDS_VALUE)}
"""The fixes for exceptions of a kind, whatever their messages."""
