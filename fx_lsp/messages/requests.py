"""Failures of requests: missing files, targets, stages and passes."""

from __future__ import annotations

from fx_lsp.messages.template import FailureTemplate

RESTARTING = FailureTemplate("unsupported", "fx-lsp is restarting")
NOT_OPEN = FailureTemplate("unsupported", "{file} is not open")
CLOSED = FailureTemplate("unsupported", "{file} was closed")
NO_SUCH_TARGET = FailureTemplate("unsupported", "{file} has no function or module {name!r} that can be traced")
NO_SUCH_GRAPH = FailureTemplate("unsupported", "there is no such graph")
NO_SUCH_STAGE = FailureTemplate("unsupported", "{name} has no stage {stage!r}")
UNSTORED_STAGE = FailureTemplate("unsupported", "the stage {stage!r} of {name} could not be stored")
NO_SUCH_VARIANT = FailureTemplate(
    "unsupported", "{name} has no variant {variant!r}: it is neither an optional tensor nor a flag"
)
NO_SUCH_LISTING = FailureTemplate("unsupported", "kernels for {gpu} have no {view}")

CORRECT_PASSES = "Correct `passes` of [tool.fx-lsp] in pyproject.toml."
"""The fix for passes that the project's settings name; others come from a request."""
NO_FILE_OF_PASS = FailureTemplate("unsupported", "there is no file {file} with a pass {name}")
UNREADABLE_PASS = FailureTemplate("unsupported", "cannot read {file} with the pass {name}: {error}")
NO_SUCH_PASS = FailureTemplate("unsupported", "{file} has no pass {name!r}; it has {passes}")
NO_PASS_AT_ALL = FailureTemplate("unsupported", "{file} has no pass {name!r}; a pass takes a GraphModule")
