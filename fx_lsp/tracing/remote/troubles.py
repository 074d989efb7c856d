"""Describe failures between this machine and a host, each as one clear sentence and a remedy."""

from __future__ import annotations

import re
from typing import Any

from fx_lsp.measured import Failed
from fx_lsp.tracing.remote.hosts import LOCAL, Host
from fx_lsp.tracing.workers.processes import describe_status, gist
from fx_lsp.wire import readable

NEEDED = "a job needs torch 2.6 or newer and triton there, and Python 3.10 or newer"
NO_EXECNET = Failed(
    "benchmarks need execnet, which is not installed next to fx-lsp", "install fx-lsp with its extra `bench`"
)
_SSH_FAILED = 255
_ERROR = r"\b[Ee]rror\b"

_SSH: tuple[tuple[str, str, str], ...] = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        "{name} has a different host key than before: it was reinstalled, or it is another machine",
        "if it is the same machine, remove the old key: ssh-keygen -R its name; then connect once with: {try_it}",
    ),
    (
        r"[Hh]ost key verification failed|No \S+ host key is known",
        "the host key of {name} is not known here yet",
        "connect once in a terminal and compare the key: {try_it}",
    ),
    (
        r"Too many authentication failures|Permission denied|No more authentication methods",
        "{name} does not accept your key, and a job cannot enter a password",
        "copy your key there (ssh-copy-id) or add it to your ssh-agent, until this command needs no password: {try_it}",
    ),
    (
        r"[Cc]ould not resolve hostname ([^:\s]*)",
        "there is no host {1}: its name cannot be resolved",
        "write under ssh what you pass to the ssh command: a name from ~/.ssh/config, or user@address",
    ),
    (
        r"Bad configuration option|Can't open user config file|no argument after|Bad owner or permissions",
        "ssh does not accept its configuration: {said}",
        "try: {try_it}",
    ),
    (
        r"Connection refused|No route to host|Network is unreachable|Connection timed out|Operation timed out",
        "{name} cannot be reached: {said}",
        "is it switched on, and the network or VPN up? try: {try_it}",
    ),
    (
        r"[Cc]onnection (?:to|from) .*(?:closed|reset)|[Cc]onnection (?:closed|reset)|kex_exchange_identification",
        "{name} closed the connection before Python started there",
        "try: {try_it}",
    ),
)


def not_started(host: Host, error: OSError) -> Failed:
    """Return the failure to start the program that connects to the host."""
    program = error.filename or (host.command.split() or ["ssh"])[0]
    if isinstance(error, FileNotFoundError):
        return Failed(f"there is no command {program} on this machine, which is used to reach {host.name}", _mend(host))
    return Failed(f"{program} cannot be started: {error.strerror or error}", _mend(host))


def not_connected(host: Host, status: int | None, said: str, late: bool) -> Failed:
    """Return the failure to reach a Python. `status` is the exit code of the connecting program, `said` its output;
    `late` is True after the time limit.
    """
    said = said.strip()
    if late:
        last = said.splitlines()[-1] if said else ""
        return Failed(
            f"{host.name} does not answer: no Python was running there after {host.connect:g} s"
            + (f"; its output: {last[:200]}" if last else ""),
            f"raise `connect` of {host.name} in hosts.toml if it needs longer, or run it yourself: {_try(host)}",
        )
    if host.ssh and status == _SSH_FAILED:
        for pattern, message, hint in _SSH:
            if match := re.search(pattern, said):
                groups = match.groups()
                line = next(line for line in said.splitlines() if match[0].splitlines()[0] in line).strip()
                words = {"name": host.name, "said": line.removeprefix("ssh: "), "try_it": _try(host)}
                return Failed(message.format(match[0], *groups, **words), hint.format(**words))
        return Failed(f"ssh cannot reach {host.name}: {gist(said) or 'it gives no explanation'}", f"try: {_try(host)}")
    python = _python(host)
    if re.search(r"future feature annotations is not defined|SyntaxError", said):
        return Failed(f"{python} {at(host)} is older than 3.10; fx-lsp needs 3.10 or newer", _mend_python(host))
    missing = _line_with(r"[Nn]o such file or directory|not found", said)
    if status == 127 or missing:
        return Failed(
            f"there is no {python} {at(host)}: {missing or _last(said) or 'command not found'}", _mend_python(host)
        )
    if status == 126:
        return Failed(f"{python} {at(host)} cannot be run: {_last(said) or 'not executable'}", _mend_python(host))
    how = "ended" if status is None else describe_status(status)
    return Failed(
        f"no Python answered {at(host)}: the command that starts it {how}"
        + _so(_line_with(_ERROR, said) or gist(said)),
        f"try: {_try(host)}",
    )


def talkative(host: Host, text: str) -> Failed:
    """Return the failure of a host that prints text among the protocol's data."""
    return Failed(
        f"{host.name} prints text before its Python starts" + (f": {text[:80]!r}" if text else ""),
        "restrict what prints there, for example a line of ~/.bashrc, to interactive shells",
    )


def lost(host: Host, status: int | None, said: str, silent: float | None = None) -> Failed:
    """Return the failure of a connection that ended during a job, or was silent for `silent` seconds."""
    hint = "the job there ends at the latest when you run the next one on that host"
    if silent is not None:
        return Failed(f"{host.name} has not answered for {silent:g} s: the connection hangs", hint)
    why = _line_with(_ERROR, said) or _last(said)
    if not host.ssh and status is not None and status < 0:
        return Failed(f"the Python {at(host)} {describe_status(status)} in the middle of the job", hint)
    if re.search(r"Broken pipe|[Cc]onnection.*(?:closed|reset|timed out)|Timeout, server", said):
        return Failed(f"the connection to {host.name} was lost in the middle of the job" + _so(why), hint)
    if host.ssh and status == _SSH_FAILED:
        return Failed(f"the Python {at(host)} was killed in the middle of the job, or the connection was lost", hint)
    return Failed(f"the Python {at(host)} ended in the middle of the job" + _so(why), hint)


def refused(host: Host, facts: dict[str, Any]) -> Failed:
    """Return the supervisor's reason not to start a job."""
    facts = readable(facts)
    kind = facts.get("kind")
    if kind == "python":
        python = facts["executable"] or _python(host)
        message = f"{python} {at(host)} is Python {facts['version']}; 3.10 or newer is needed"
        return Failed(message, _mend_python(host))
    if kind == "torch":
        version = facts["version"]
        lacks = f"has torch {version}, which is too old" if version else "has no torch"
        return Failed(f"{facts['executable']} {at(host)} {lacks}", _mend_python(host))
    if kind == "disk":
        free = facts["free"] / (1 << 20)
        return Failed(f"there are only {free:.0f} MB free in {facts['folder']} {at(host)}", _MEND_FOLDER)
    return Failed(f"a job cannot write to {facts.get('folder')} {at(host)}: {facts.get('why')}", _MEND_FOLDER)


def ended(host: Host, result: dict[str, Any], seconds: float, said: str = "") -> Failed:
    """Return the failure of a runner that ended without a report. `said` is the output of the connecting program."""
    result = readable(result)
    why, status, errors = result.get("why"), int(result.get("status", 0)), str(result.get("errors", ""))
    if why == "limit":
        return Failed(
            f"the job {at(host)} was stopped at its limit of {seconds:g} s",
            "measure fewer variants, or raise `limit` of that host in hosts.toml",
        )
    if why == "terminated":
        return Failed(
            f"the job {at(host)} was terminated there" + _so(_line_with(_ERROR, said)),
            "a scheduler does this when the time of a job is over, or when somebody cancels the job",
        )
    if status < 0:
        return Failed(
            f"the job {at(host)} was killed there: it {describe_status(status)}",
            "often because of too little memory; a scheduler may also have stopped it",
        )
    if re.search(r"No space left on device", errors):
        return Failed(f"the disk of {host.name} is full", _MEND_FOLDER)
    return Failed(f"the job {at(host)} {describe_status(status)} without a report" + _so(gist(errors)))


_MEND_FOLDER = 'free space there, or configure another folder in hosts.toml: folder = "/path/with/space"'


def _python(host: Host) -> str:
    return host.python or (host.command.split()[-1] if host.command else "python3")


def _try(host: Host) -> str:
    """Return a command that shows the failure in a terminal."""
    if host.ssh:
        config = f"-F {host.ssh_config} " if host.ssh_config else ""
        return f"ssh {config}{host.ssh} {host.python or 'python3'} --version"
    return f"{host.command or host.python or 'python3'} --version"


def _mend(host: Host) -> str:
    return f"correct how {host.name} is reached in hosts.toml"


def at(host: Host) -> str:
    """Return the place of a host in a sentence: "on h200", "here"."""
    return "here" if host.name == LOCAL else f"on {host.name}"


def _mend_python(host: Host) -> str:
    if host.name == LOCAL:
        return f"choose another Python: --python, or fx-lsp.interpreter in an editor; {NEEDED}"
    if host.command:
        return f"let its command in hosts.toml end in another Python; {NEEDED}"
    return f'configure another in hosts.toml: python = "/path/to/python"; {NEEDED}'


def _last(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""


def _line_with(pattern: str, said: str) -> str:
    """Return the first line that matches: messages on a queue may precede it, and consequences follow it."""
    return next((line.strip()[:200] for line in said.splitlines() if re.search(pattern, line)), "")


def _so(why: str) -> str:
    return f": {why}" if why else ""
