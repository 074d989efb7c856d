"""Parse the client's settings: from `initializationOptions`, `workspace/configuration`,
`workspace/didChangeConfiguration`.

They may be nested (`{"inlayHints": {"enabled": false}}`), dotted (`{"inlayHints.enabled": false}`), or under a key
`fx-lsp`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from fx_lsp.features.hints import KINDS, SHOWN_KINDS, HintKind
from fx_lsp.features.kernels import CHIP
from fx_lsp.features.source.findings import FINDINGS, TOLD
from fx_lsp.features.wording.dimensions import STYLES, SizeStyle
from fx_lsp.model import FindingCode

if TYPE_CHECKING:
    from fx_lsp.tracing.engine import EngineSettings

SECTION = "fx-lsp"
Trust = Literal["ask", "always", "never"]
MAX_NUMBER = 1e9
"""The largest limit: effectively unlimited, but still a valid time and size for the system."""


@dataclass(frozen=True)
class Settings:
    """Hold the user's settings. `limits_seconds` are per trace, `limits_memory` in MiB; None means to find the value,
    or the default. Traced code may read the paths `limits_read` and start `limits_programs`; without `limits_sandbox`,
    it may do all that the user may. Tracers end after `idle_minutes` without
    use.

    With `all_lenses`, a target has a lens for each graph and command, in place of one that opens a menu of them.
    `problems` are the findings to report, `hint_kinds` the hints to show. `sizes` is the style of sizes that have names
    in the code. `gpu` is the default chip to compile kernels for, `host` the host of benchmarks.

    Editor plugins, not people, set the others. With `virtual_documents`, the client opens `fx-lsp:` URIs through
    `fxLsp/document`; with `command_links`, it follows `command:` links in hovers; with `changes`, it wants
    `fxLsp/changed`. `trusted` is the answer of a client that asks about trust itself, None if the server asks;
    `interpreters` maps a folder to its Python.

    `trust` says whether code may run in a folder that the user was not asked about. A workspace may bring settings for
    its editor: those that come after `initialize` cannot give trust (`without_more_trust`).
    """

    interpreter: str | None = None
    inlay_hints: bool = True
    hint_kinds: frozenset[HintKind] = SHOWN_KINDS
    strides: bool = False
    sizes: SizeStyle = "names"
    code_lens: bool = True
    all_lenses: bool = False
    diagnostics: bool = True
    problems: frozenset[FindingCode] = TOLD
    trace_on_open: bool = True
    trust: Trust = "ask"
    limits_seconds: float = 60.0
    limits_memory: float = 4096.0
    limits_read: tuple[str, ...] = ()
    limits_programs: tuple[str, ...] = ()
    limits_sandbox: bool = True
    idle_minutes: float = 10.0
    cache_path: str | None = None
    gpu: str = CHIP
    host: str = ""
    virtual_documents: bool = False
    command_links: bool = False
    changes: bool = False
    trusted: bool | None = None
    interpreters: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class _Row:
    key: str
    field: str
    kind: type
    wanted: str
    values: tuple[str, ...] = ()
    least: float | None = None


_ROWS = (
    _Row("interpreter", "interpreter", str, "a path"),
    _Row("inlayHints.enabled", "inlay_hints", bool, "true or false"),
    *(_Row(f"inlayHints.{kind}", "hint_kinds", bool, "true or false") for kind in KINDS),
    _Row("inlayHints.strides", "strides", bool, "true or false"),
    _Row("sizes", "sizes", str, "names, numbers or both", values=STYLES),
    _Row("codeLens.enabled", "code_lens", bool, "true or false"),
    _Row("codeLens.all", "all_lenses", bool, "true or false"),
    _Row("diagnostics.enabled", "diagnostics", bool, "true or false"),
    *(_Row(f"problems.{code}", "problems", bool, "true or false") for code in FINDINGS),
    _Row("traceOnOpen", "trace_on_open", bool, "true or false"),
    _Row("trust", "trust", str, "ask, always or never", values=get_args(Trust)),
    _Row("limits.seconds", "limits_seconds", float, "a number of seconds above 0 and up to a billion"),
    _Row("limits.memory", "limits_memory", float, "a number of MiB above 0 and up to a billion"),
    _Row("limits.read", "limits_read", list, "a list of paths"),
    _Row("limits.programs", "limits_programs", list, "a list of names of programs"),
    _Row("limits.sandbox", "limits_sandbox", bool, "true or false"),
    _Row("idle.minutes", "idle_minutes", float, "a number of minutes from 0 and up to a billion", least=0),
    _Row("cache.path", "cache_path", str, "a path"),
    _Row("gpu", "gpu", str, "a chip, as in cuda:90"),
    _Row("host", "host", str, "the name of a host"),
    _Row("virtualDocuments", "virtual_documents", bool, "true or false"),
    _Row("commandLinks", "command_links", bool, "true or false"),
    _Row("changes", "changes", bool, "true or false"),
    _Row("trusted", "trusted", bool, "true or false"),
    _Row("interpreters", "interpreters", tuple, "a list of pairs of a folder and a path"),
)

_SWITCHED = frozenset({"problems", "hint_kinds"})
"""Fields that are sets, with a key for each possible name."""


def read_settings(raw: object, base: Settings, former: Settings | None = None) -> tuple[Settings, tuple[str, ...]]:
    """Return `base` updated by `raw`, and a sentence for each value that was ignored because of its type.

    Such a value stays as in `former` (`base`, without it).
    """
    if raw is None:
        return base, ()
    if not isinstance(raw, Mapping):
        return base, (f"the settings are {raw!r}, not an object",)
    table = cast("Mapping[str, Any]", raw)
    for section in (SECTION, "fxLsp"):
        inner = table.get(section)
        if isinstance(inner, Mapping):
            table = cast("Mapping[str, Any]", inner)
    values = dict(_flatten(table))
    changes: dict[str, Any] = {}
    wrong = [
        f"{SECTION}.{key} is {value!r}, not an object"
        for key, value in values.items()
        if value is not None and any(row.key.startswith(key + ".") for row in _ROWS)
    ]
    for row in (row for row in _ROWS if row.key in values):
        value = values[row.key]
        if row.field in _SWITCHED and (value is None or isinstance(value, bool)):
            changes[row.field] = _switched(row, value, changes.get(row.field, getattr(base, row.field)))
        elif value is None or (row.kind is str and value == ""):
            changes[row.field] = getattr(Settings(), row.field)
        elif _fits(value, row):
            changes[row.field] = _taken(value, row)
        else:
            changes.setdefault(row.field, getattr(former or base, row.field))
            wrong.append(f"{SECTION}.{row.key} is {value!r}, not {row.wanted}")
    return replace(base, **changes), tuple(wrong)


def _switched(row: _Row, value: bool | None, names: frozenset[str]) -> frozenset[str]:
    """Return the enabled names after one of them is set, or, with None, reset to its default."""
    name, by_default = row.key.partition(".")[2], getattr(Settings(), row.field)
    return names | {name} if (name in by_default if value is None else value) else names - {name}


def _fits(value: object, row: _Row) -> bool:
    if row.kind is float:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not value <= MAX_NUMBER:
            return False
        return value > 0 or (row.least is not None and value >= row.least)
    if row.kind is tuple:
        return isinstance(value, (list, tuple)) and all(_is_pair(item) for item in cast("Sequence[object]", value))
    if row.kind is list:
        return isinstance(value, (list, tuple)) and all(map(_is_text, cast("Sequence[object]", value)))
    return isinstance(value, row.kind) and (row.kind is bool or _is_text(value)) and value in (row.values or (value,))


def _is_pair(item: object) -> bool:
    texts = cast("Sequence[object]", item) if isinstance(item, (list, tuple)) else ()
    return len(texts) == 2 and all(map(_is_text, texts))


def _is_text(value: object) -> bool:
    """Return True if a value is valid text for a path or a command: without a NUL, and without a lone surrogate."""
    return isinstance(value, str) and "\0" not in value and not any("\ud800" <= c <= "\udfff" for c in value)


def _taken(value: Any, row: _Row) -> object:
    if row.kind is tuple:
        return tuple((folder, path) for folder, path in value)
    if row.kind is list:
        return tuple(value)
    return float(value) if row.kind is float else value


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(cast("Mapping[str, Any]", value), f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


_LEAST_TRUST_FIRST: tuple[Trust, ...] = ("never", "ask", "always")


def without_more_trust(settings: Settings, first: Settings) -> Settings:
    """Return settings with no more trust than the first ones, which no workspace can change."""
    trust = min(settings.trust, first.trust, key=_LEAST_TRUST_FIRST.index)
    if first.trusted is not None:  # the client keeps a workspace from changing these
        return replace(settings, trust=trust)
    return replace(
        settings,
        trust=trust,
        trusted=None,
        limits_read=tuple(path for path in settings.limits_read if path in first.limits_read),
        limits_programs=tuple(name for name in settings.limits_programs if name in first.limits_programs),
        limits_sandbox=settings.limits_sandbox or first.limits_sandbox,
    )


def engine_settings(settings: Settings, may_run: Callable[[str], bool]) -> EngineSettings:
    """Return the part of the settings for the engine."""
    from fx_lsp.tracing.answers.disk import default_cache_path
    from fx_lsp.tracing.engine import EngineSettings
    from fx_lsp.tracing.workers.pool import Limits

    limits = Limits(
        seconds=settings.limits_seconds,
        memory_bytes=int(settings.limits_memory * 2**20),
        reads=settings.limits_read,
        programs=settings.limits_programs,
        confined=settings.limits_sandbox,
        idle_seconds=60 * settings.idle_minutes,
    )
    return EngineSettings(
        interpreter=settings.interpreter,
        cache_path=settings.cache_path or default_cache_path(),
        limits=limits,
        trace_on_open=settings.trace_on_open,
        may_run=may_run,
        interpreters=settings.interpreters,
    )
