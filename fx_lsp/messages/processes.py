"""Failures of processes: limits, crashes, and bugs of fx-lsp itself."""

from __future__ import annotations

from fx_lsp.messages.template import FailureTemplate

_SMALLER = "write smaller inputs in a `# fx:` comment"
TIMED_OUT = FailureTemplate(
    "timeout",
    "{work} took more than {seconds:g} s and was stopped",
    f"Check whether this code ends; if it does, {_SMALLER}, or raise `fx-lsp.limits.seconds`.",
)
TIMED_OUT_AT_LINE = FailureTemplate("timeout", f"{TIMED_OUT.text} while it was at line {{line}}", TIMED_OUT.hint)
OUT_OF_MEMORY_KILLED = FailureTemplate(
    "memory",
    "the process that traced {name} was killed (SIGKILL), most likely because memory ran out",
    f"The limit is {{mebibytes:.0f}} MiB; {_SMALLER}, or restart the server's tracers to try again.",
)

_ENDED = "tracing {name} ended without a result: {error}"
_LOOK_FOR_EXIT = "Look for `os._exit`, or for native code that exits the process."
EXITED = FailureTemplate("exit", _ENDED, _LOOK_FOR_EXIT)
ENDED_WITH_STATUS = FailureTemplate("crash", _ENDED, _LOOK_FOR_EXIT)
CRASHED = FailureTemplate(
    "crash",
    "{work} crashed the process with {crash} ({signal})",
    "Native code failed there; it cannot run on fake tensors, because they have no memory.",
)
CRASHED_AT_LINE = FailureTemplate("crash", f"{CRASHED.text} at line {{line}}", CRASHED.hint)

INTERNAL_ERROR = FailureTemplate(
    "internal",
    "internal error in fx-lsp, please report it: {error} (in the work on {work})",
    "The log has the traceback; your code may be correct.",
)
