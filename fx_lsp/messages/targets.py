"""Failures of targets: what they are, how they are reached, and how they are imported."""

from __future__ import annotations

from fx_lsp.messages.template import FailureTemplate

NOT_A_MODULE = FailureTemplate("unsupported", "{name} is not an nn.Module")
NO_SIGNATURE = FailureTemplate("unsupported", "{name} has no readable signature")
NO_SIGNATURE_OF_CONSTRUCTOR = FailureTemplate("construct", "the constructor of {name} has no readable signature")
NOT_DEFINED = FailureTemplate("unsupported", "{name} does not exist after the file has run")
NOT_DEFINED_INSIDE = FailureTemplate(
    "unsupported", "{function} ran without defining {name}: the code that defines it was not reached"
)
NOT_CAPTURED = FailureTemplate("unsupported", "it runs, but AOTAutograd cannot capture it: {reason}")
NO_TRAINING = FailureTemplate("unsupported", "{file} does not train to its second step here: {reason}")
NO_OPERATIONS = FailureTemplate("nothing", "{name} runs no PyTorch operation")
NO_OPERATIONS_BEFORE_ERROR = FailureTemplate("nothing", "{name} runs no PyTorch operation before it fails: {error}")

CALLER_RAISES = FailureTemplate("error", "{name} cannot be run: {error}")
STEP_CANNOT_RUN = FailureTemplate("inputs", "{name} cannot be run: {error}")
NO_CALL_OF_STEP = FailureTemplate("inputs", "no call of {function} was found")
LOOP_NOT_REACHED = FailureTemplate("inputs", "the code of {function} before the loop cannot be run: {error}")

# The target builds a graph by hand.
SHOWN_AS_BUILT = FailureTemplate(
    "unsupported", "{name} builds a graph: the graph is shown as built, and is not compiled"
)
NO_GRAPH_FOR_PASS = FailureTemplate(
    "unsupported", "there is no graph {graph!r} to run a pass on: {name} builds one itself"
)
RETURNS_NO_GRAPH = FailureTemplate("unsupported", "{name} returns {returned}, not a Graph or GraphModule")

_OTHER_INTERPRETER = "or choose another interpreter (`fx-lsp.interpreter`)."
PACKAGE_RAISES = FailureTemplate("import", "{error}", f"Repair its installation, {_OTHER_INTERPRETER}")
PACKAGE_MISSING = FailureTemplate(
    "import",
    "the package `{package}` is not installed in the interpreter that fx-lsp uses",
    f"Install it, {_OTHER_INTERPRETER}",
)
SUBMODULE_MISSING = FailureTemplate(
    "import",
    "the package `{package}` has no module `{module}` in the interpreter that fx-lsp uses",
    f"Check the name and the package's version, {_OTHER_INTERPRETER}",
)
