"""Parse a client's options of a benchmark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pygls.exceptions import JsonRpcInvalidParams

from fx_lsp.measured import EAGER, WHATS, What


@dataclass(frozen=True)
class BenchOptions:
    """Hold a client's options. Without `hosts`, the host of the settings is used, or the user is asked."""

    hosts: tuple[str, ...] = ()
    variants: tuple[str, ...] | None = None
    what: tuple[What, ...] = ("forward", "both")
    inputs: str | None = None
    sweep: str | None = None
    work: str = ""
    profile: bool = False
    by_line: bool = False
    show: bool = True


def read_options(options: Any) -> BenchOptions:
    """Return the options of a request. Raises JsonRpcInvalidParams for invalid ones."""
    table = _plain(options)
    readers: dict[str, Callable[[str, Any], Any]] = {
        "hosts": _texts,
        "variants": _texts,
        "what": _texts,
        "inputs": _text,
        "sweep": _text,
        "work": _text,
        "profile": _flag,
        "byLine": _flag,
        "show": _flag,
    }
    if strange := sorted(table.keys() - readers.keys()):
        raise JsonRpcInvalidParams(f"there is no option {strange[0]}; there are: {', '.join(readers)}")
    fields: dict[str, Any] = {name: readers[name](name, value) for name, value in table.items() if value is not None}
    whats = tuple(what for what in WHATS if what in fields.get("what", ("forward", "both")))
    if not whats or set(fields.get("what", ())) - set(WHATS):
        raise JsonRpcInvalidParams(f"`what` must be a list of {', '.join(WHATS)}")
    fields["what"] = whats
    if fields.pop("byLine", False):
        fields |= {"by_line": True, "variants": tuple(dict.fromkeys((EAGER, *(fields.get("variants") or ()))))}
    return BenchOptions(**fields)


def _plain(options: Any) -> dict[str, Any]:
    if options is None:
        return {}
    if hasattr(options, "_asdict"):  # pygls passes objects as named tuples
        options = options._asdict()
    if not isinstance(options, Mapping):
        raise JsonRpcInvalidParams('the options must be an object, as in {"hosts": ["local"]}')
    return dict(cast("Mapping[str, Any]", options))


def _texts(name: str, value: Any) -> tuple[str, ...]:
    texts = cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else None
    if texts is None or not all(isinstance(text, str) for text in texts):
        raise JsonRpcInvalidParams(f"{name} must be a list of strings")
    return tuple(texts)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise JsonRpcInvalidParams(f"{name} must be a string")
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise JsonRpcInvalidParams(f"{name} must be true or false")
    return value
