"""Model to JSON and back, and the framing of messages between our processes. Standard library only.

A frame is two big-endian uint32 (header length, body length), a JSON object (the header), and raw bytes (the body).
A trace crosses as one `reply` frame followed by one `stage` frame per stage, so that no reader
has to decode all of a large trace at once.
"""

from __future__ import annotations

import dataclasses
import json
import struct
import types
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from fx_lsp.errors import ProtocolError
from fx_lsp.model import Failure, Node, Span, Stage, Trace

T = TypeVar("T")

PREFIX = struct.Struct(">II")
MAX_FRAME = 1 << 30


def frame(header: dict[str, Any], body: bytes = b"") -> bytes:
    """One encoded frame."""
    head = json.dumps(header, separators=(",", ":")).encode()
    return PREFIX.pack(len(head), len(body)) + head + body


def frame_lengths(prefix: bytes) -> tuple[int, int]:
    """Header and body length from the first `PREFIX.size` bytes of a frame. Raises ProtocolError."""
    head, body = PREFIX.unpack(prefix)
    if head > MAX_FRAME or body > MAX_FRAME:
        raise ProtocolError(f"frame of {head} + {body} bytes: larger than {MAX_FRAME}")
    return head, body


def read_frame(read: Callable[[int], bytes]) -> tuple[dict[str, Any], bytes] | None:
    """The next frame from a blocking `read(n)` (which may return less), or None at a clean end.

    Raises ProtocolError where the stream ends inside a frame or the header is not a JSON object.
    """
    prefix = _read_exactly(read, PREFIX.size)
    if not prefix:
        return None
    head, body = frame_lengths(prefix)
    return parse_header(_read_exactly(read, head)), _read_exactly(read, body)


def parse_header(data: bytes) -> dict[str, Any]:
    """The JSON object in a frame's header. Raises ProtocolError."""
    try:
        header = json.loads(data)
    except ValueError as error:
        raise ProtocolError(f"frame header is not JSON: {data[:80]!r}") from error
    if not isinstance(header, dict):
        raise ProtocolError(f"frame header is not an object: {data[:80]!r}")
    return cast("dict[str, Any]", header)


def _read_exactly(read: Callable[[int], bytes], size: int) -> bytes:
    chunks: list[bytes] = []
    missing = size
    while missing:
        chunk = read(missing)
        if not chunk:
            if chunks:
                raise ProtocolError(f"stream ended {missing} bytes before the end of a frame")
            return b""
        chunks.append(chunk)
        missing -= len(chunk)
    return b"".join(chunks)


def to_json(value: Any) -> Any:
    """A model dataclass (or a tuple, dict or scalar of them) as JSON-ready data; keys are field names."""
    if dataclasses.is_dataclass(value):
        return {name: to_json(getattr(value, name)) for name in _field_names(type(value))}
    if isinstance(value, (tuple, list)):
        return [to_json(v) for v in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {k: to_json(v) for k, v in cast("dict[str, Any]", value).items()}
    return value


def from_json(type_: type[T], data: Any) -> T:
    """The inverse of `to_json` for a model dataclass, without unknown keys. Raises ProtocolError on a wrong shape."""
    try:
        return _decoder(type_)(data)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise ProtocolError(f"not a {getattr(type_, '__name__', type_)}: {str(data)[:120]}") from error


def outcome_to_json(outcome: Trace | Failure) -> dict[str, Any]:
    """A tagged object: `{"trace": …}` or `{"failure": …}`."""
    return {"trace" if isinstance(outcome, Trace) else "failure": to_json(outcome)}


def outcome_from_json(data: dict[str, Any]) -> Trace | Failure:
    """The inverse of `outcome_to_json`. Raises ProtocolError."""
    if "trace" in data:
        return from_json(Trace, data["trace"])
    return from_json(Failure, data.get("failure"))


def encode_stage(stage: Stage) -> bytes:
    """A stage as compact JSON: spans and chains of spans stand once in a table, nodes are rows."""
    files: dict[str, int] = {}
    spans: dict[Span, int] = {}
    chains: dict[tuple[Span, ...], int] = {}
    for node in stage.nodes:
        if node.spans not in chains:
            chains[node.spans] = len(chains)
            for span in node.spans:
                files.setdefault(span.file, len(files))
                spans.setdefault(span, len(spans))
    return json.dumps(
        {
            "name": stage.name,
            "text": stage.text,
            "files": list(files),
            "spans": [[files[s.file], s.line, s.col, s.end_line, s.end_col] for s in spans],
            "chains": [[spans[s] for s in chain] for chain in chains],
            "nodes": [
                [n.name, n.op, n.target, n.args, n.inputs, n.users, n.spec, chains[n.spans], n.comment]
                for n in stage.nodes
            ],
        },
        separators=(",", ":"),
    ).encode()


def decode_stage(data: bytes) -> Stage:
    """The inverse of `encode_stage`. Raises ProtocolError."""
    try:
        table: dict[str, Any] = json.loads(data)
        files: list[str] = table["files"]
        rows: list[list[int]] = table["spans"]
        spans = [Span(files[f], *place) for f, *place in rows]
        numbers: list[list[int]] = table["chains"]
        chains: list[tuple[Span, ...]] = [tuple(spans[i] for i in chain) for chain in numbers]
        encoded: list[list[Any]] = table["nodes"]
        return Stage(table["name"], tuple(_node(row, chains) for row in encoded), table["text"])
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise ProtocolError(f"not a stage: {data[:80]!r}") from error


def _node(row: list[Any], chains: list[tuple[Span, ...]]) -> Node:
    name, op, target, args, inputs, users, spec, _, comment = row
    chain: int = row[7]
    return Node(name, op, target, tuple(args), tuple(inputs), tuple(users), spec, chains[chain], comment)


@cache
def _field_names(type_: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(type_))


@cache
def _decoder(type_: Any) -> Callable[[Any], Any]:
    if dataclasses.is_dataclass(type_):
        hints = get_type_hints(type_)
        decoders = {f.name: _decoder(hints[f.name]) for f in dataclasses.fields(type_)}
        make = cast("Callable[..., Any]", type_)
        return lambda data: make(**{k: decoders[k](v) for k, v in data.items() if k in decoders})
    origin, args = get_origin(type_), get_args(type_)
    if origin is tuple:
        item = _decoder(args[0])
        return lambda data: tuple(item(v) for v in data)
    if origin is dict:
        value = _decoder(args[1])
        return lambda data: {k: value(v) for k, v in data.items()}
    if origin in (Union, types.UnionType) and type(None) in args:
        inner = _decoder(next(a for a in args if a is not type(None)))
        return lambda data: None if data is None else inner(data)
    if origin is Literal or type_ in (str, int, float, bool):
        return lambda data: data
    raise TypeError(f"no decoder for {type_}")
