"""Failures of processes: limits, crashes, and bugs of fx-lsp itself."""

from __future__ import annotations

from collections.abc import Mapping

from fx_lsp.messages.template import FailureTemplate

_SMALLER = "write smaller inputs in a `# fx:` comment"
TIMED_OUT = FailureTemplate(
    "timeout",
    "{work} took more than {seconds:g} s and was stopped",
    f"Check whether this code ends; if it does, {_SMALLER}, "
    "or raise `fx-lsp.limits.seconds` (`--limit-seconds` in a terminal).",
)
TIMED_OUT_AT_LINE = FailureTemplate("timeout", f"{TIMED_OUT.text} while it was at {{place}}", TIMED_OUT.hint)
OUT_OF_MEMORY_KILLED = FailureTemplate(
    "memory",
    "the process that traced {name} was killed (SIGKILL), most likely because memory ran out",
    f"The limit is {{mebibytes:.0f}} MiB; {_SMALLER}, or restart the server's tracers to try again.",
)
USED_TOO_MUCH = FailureTemplate(
    "memory",
    "{work} and all processes that it started were stopped: together they used more than {mebibytes:.0f} MiB of memory",
    f"Check what this code allocates and starts; {_SMALLER}, or raise `fx-lsp.limits.memory`.",
)
WROTE_TOO_MUCH = FailureTemplate(
    "memory",
    "{work} was stopped: it wrote more than {mebibytes:.0f} MiB of temporary files",
    "Check what this code writes; the files are removed.",
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
CRASHED_AT_LINE = FailureTemplate("crash", f"{CRASHED.text} at {{place}}", CRASHED.hint)

NOT_TRUSTED = FailureTemplate(
    "interpreter",
    "Nothing is traced, because this workspace is not trusted",
    "fx-lsp runs the code on fake tensors to show graphs, shapes and kernels; trust the workspace to see them.",
)
TRUST_QUESTION = (
    "Do you trust {folder}? To show graphs and shapes, fx-lsp runs code of this folder and of its project on fake "
    "tensors, with the interpreter {python}. {protection} Until you trust the folder, none of it runs. "
    "The answer includes the folders in it."
)
UNCONFINED = "It may do all that you may, because the setting limits.sandbox is off."
CONFINED = "It writes only temporary files, has no network, and starts no programs."
HOW_TO_TRUST = (
    "fx-lsp runs no code of {folder}, because you have not trusted it: "
    "run `fx-lsp trust {quoted}`, or the command fxLsp.trust in the editor."
)
HOW_TO_TRUST_IN_TERMINAL = (
    "fx-lsp runs no code of {folder}, because the user has not trusted it: the user can run `fx-lsp trust {quoted}` in "
    "a terminal."
)
HOW_TO_CONFIRM_HOST = (
    "{place} ({reached}) is only used after the user has confirmed it: the user can run `fx-lsp bench {quoted} --host "
    "{host}` in a terminal."
)
TRUST_IS_SET = {
    "client": "fx-lsp: the editor decides whether its workspace is trusted",
    "always": "fx-lsp: every folder is trusted: the server was started with --trust, or with the setting trust",
    "never": "fx-lsp: no folder is trusted, because of the setting trust",
}
ALREADY_TRUSTED = "fx-lsp: {folder} is trusted"
NO_LONGER_TRUSTED = "fx-lsp: {folder} is not trusted any more; none of its code runs"
UNSTORED_TRUST = "fx-lsp: your answer about {folder} cannot be stored, and is valid until the server ends: {error}"
TRUST_OF_WORKSPACE = (
    "fx-lsp: `trust`, `trusted` and what `limits` allow only count in initializationOptions, because a workspace may "
    "bring its own settings"
)

INTERPRETER_REASONS: Mapping[str, str] = {
    "setting": "set as `interpreter`",
    "editor": "selected in the editor",
    "picked": "picked in this session",
    "active": "active: {name}",
    "variable": "named by {name}",
    "folder": "`{name}` of the folder",
    "pdm": "PDM's environment, named in `{name}`",
    "poetry": "Poetry's environment `{name}`",
    "hatch": "Hatch's environment `{name}`",
    "virtualenv": "virtual environment `{name}`, made for the folder",
    "pixi": "pixi's environment `{name}`",
    "conda": "conda environment `{name}`, named in {file}",
    "pyenv": "pyenv's `{name}`, named by {file}",
    "other-conda": "conda environment `{name}`, which the folder does not name",
    "other-pyenv": "pyenv's `{name}`, which the folder does not name",
    "server": "runs fx-lsp, and has torch",
    "path": "`{name}` on the PATH",
    "last": "runs fx-lsp; no other Python is on this machine",
}
"""Why an interpreter is used, or offered."""
PICK_INTERPRETER = "Trace {folder} with which Python?"
INTERPRETER_PICKED = (
    "fx-lsp: {path} is used until the server ends; set `fx-lsp.interpreter` to this path to use it from now on"
)

INTERNAL_ERROR = FailureTemplate(
    "internal",
    "internal error in fx-lsp, please report it: {error} (in the work on {work})",
    "The log has the traceback; your code may be correct.",
)
