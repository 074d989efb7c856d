"""Model to JSON and back, and the framing of messages between our processes. Standard library only.

A frame is two big-endian uint32 (header length, body length), a JSON object (the header), and raw bytes (the body).
A trace crosses as one `reply` frame followed by one `stage` frame per stage, so that no reader
has to decode all of a large trace at once.
"""

from __future__ import annotations

import dataclasses
import json
import re
import struct
import types
import zlib
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from io import BytesIO
from itertools import accumulate, chain, islice, pairwise, repeat
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from fx_lsp.errors import ProtocolError
from fx_lsp.measured import Event, Failed, Finished, JobProgress
from fx_lsp.model import Failure, Node, NodeOp, Span, Stage, Trace

T = TypeVar("T")

PREFIX = struct.Struct(">II")
MAX_FRAME = 1 << 30
MAX_UNPACKED = 256 << 20
"""The most bytes that stored data may have uncompressed."""
MAX_VALUES = 4_000_000
"""The most values of a header: an empty list has three bytes in JSON and seventy in memory."""
MAX_NODES, MAX_REFERENCES = 1_000_000, 10_000_000
"""The most nodes of a stage, and the most texts and places of all its nodes: nodes share lists of them."""


def frame(header: dict[str, Any], body: bytes = b"") -> bytes:
    """Return one encoded frame."""
    head = json.dumps(header, separators=(",", ":")).encode()
    return PREFIX.pack(len(head), len(body)) + head + body


def frame_lengths(prefix: bytes) -> tuple[int, int]:
    """Return header and body length from the first `PREFIX.size` bytes of a frame. Raises ProtocolError."""
    head, body = PREFIX.unpack(prefix)
    if head > MAX_FRAME or body > MAX_FRAME:
        raise ProtocolError(f"frame of {head} + {body} bytes: larger than {MAX_FRAME}")
    return head, body


def read_frame(read: Callable[[int], bytes]) -> tuple[dict[str, Any], bytes] | None:
    """Return the next frame from a blocking `read(n)` (which may return less), or None at a clean end.

    Raises ProtocolError if the stream ends inside a frame or the header is not a JSON object.
    """
    prefix = _read_exactly(read, PREFIX.size)
    if not prefix:
        return None
    head, body = frame_lengths(prefix)
    return parse_header(_read_exactly(read, head)), _read_exactly(read, body)


def parse_header(data: bytes) -> dict[str, Any]:
    """Return the JSON object in a frame's header. Raises ProtocolError."""
    if sum(map(data.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise ProtocolError(f"a header of more than {MAX_VALUES:,} values")
    try:
        header = json.loads(data)
    except (ValueError, RecursionError) as error:
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
    """Return a model dataclass (or a tuple, dict or scalar of them) as JSON-ready data; keys are field names."""
    if dataclasses.is_dataclass(value):
        return {name: to_json(getattr(value, name)) for name in _field_names(type(value))}
    if isinstance(value, (tuple, list)):
        return [to_json(v) for v in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {k: to_json(v) for k, v in cast("dict[str, Any]", value).items()}
    return value


def from_json(type_: type[T], data: Any) -> T:
    """Return the model dataclass of `to_json` data; unknown keys are ignored. Raises ProtocolError on a wrong shape."""
    try:
        return _decoder(type_)(data)
    except (TypeError, KeyError, AttributeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"not a {getattr(type_, '__name__', type_)}: {str(data)[:120]}") from error


def parse(type_: type[T], text: str | bytes) -> T:
    """Return a model dataclass from untrusted JSON text. Raises ProtocolError."""
    try:
        return from_json(type_, json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not JSON: {text[:80]!r}") from error


def readable(value: Any) -> Any:
    """Return data, with texts of user code as a terminal or a file of XML may have them: escape sequences are removed,
    control characters but newline and tab, and halves of characters, are spelled out, a carriage return is a newline.
    Raises ProtocolError.
    """
    try:
        return _readable(value)
    except RecursionError as error:
        raise ProtocolError("data is nested too deeply") from error


def _readable(value: Any) -> Any:
    if isinstance(value, str):
        if _CONTROL.search(value):
            text = _ESCAPE_SEQUENCE.sub("", value.replace("\r\n", "\n").replace("\r", "\n"))
            return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)
        return value
    if isinstance(value, dict):
        return {_readable(k): _readable(v) for k, v in cast("dict[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_readable(v) for v in cast("list[Any]", value)]
    return value


_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_ESCAPE_SEQUENCE = re.compile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\))")
"""A sequence that sets colours or moves the cursor, or a command to the terminal such as a link or a title."""


def pack(value: Any) -> bytes:
    """Return a model dataclass as compressed JSON."""
    return deflate(json.dumps(to_json(value), separators=(",", ":")).encode())


def unpack(type_: type[T], data: bytes) -> T:
    """Return the model dataclass of untrusted `pack` data. Raises ProtocolError."""
    return parse(type_, inflate(data))


def deflate(data: bytes) -> bytes:
    """Return data compressed."""
    return zlib.compress(data, 1)


def inflate(data: bytes) -> bytes:
    """Return data uncompressed. Raises ProtocolError if it is damaged, or has more than `MAX_UNPACKED` bytes."""
    decompressor = zlib.decompressobj()
    try:
        inflated = decompressor.decompress(data, MAX_UNPACKED)
    except (zlib.error, TypeError) as error:
        raise ProtocolError(f"not compressed data: {str(data)[:80]}") from error
    if not decompressor.eof:
        raise ProtocolError(f"compressed data with no end within {MAX_UNPACKED} bytes")
    return inflated


def outcome_to_json(outcome: Trace | Failure) -> dict[str, Any]:
    """Return a tagged object: `{"trace": …}` or `{"failure": …}`."""
    return {"trace" if isinstance(outcome, Trace) else "failure": to_json(outcome)}


def outcome_from_json(data: Any) -> Trace | Failure:
    """Return the inverse of `outcome_to_json`. Raises ProtocolError."""
    if not isinstance(data, dict):
        raise ProtocolError(f"not an outcome: {str(data)[:120]}")
    outcome = cast("dict[str, Any]", readable(data))
    return from_json(Trace, outcome["trace"]) if "trace" in outcome else from_json(Failure, outcome.get("failure"))


_EVENTS: dict[str, type[Event]] = {"progress": JobProgress, "found": Finished, "failed": Failed}


def event_to_json(event: Event) -> dict[str, Any]:
    """Return a tagged object: `{"progress": …}`, `{"found": …}` or `{"failed": …}`."""
    return {next(name for name, type_ in _EVENTS.items() if type(event) is type_): to_json(event)}


def event_from_json(data: dict[str, Any]) -> Event:
    """Return the inverse of `event_to_json`. Raises ProtocolError."""
    tag = next((tag for tag in _EVENTS if tag in data), None)
    if tag is None:
        raise ProtocolError(f"not an event: {str(data)[:120]}")
    return from_json(_EVENTS[tag], readable(data[tag]))


def encode_stage(stage: Stage) -> bytes:
    """Return a stage as one frame. The header has every text once; the body is columns of 32-bit numbers in native byte
    order: indices of texts, groups of texts, spans, chains of spans, and counts; the last are the origins and kernels.
    """
    words, groups, spans, chains, counts = (_numbering() for _ in range(5))
    nodes = [
        [table[getattr(node, name)] for node in stage.nodes]
        for name, table in zip(_field_names(Node), _tables(words, groups, chains, counts), strict=True)
    ]
    grouped, chained = _flat(groups, words), _flat(chains, spans)
    files = [words[span.file] for span in spans]
    places = [[getattr(span, name) for span in spans] for name in _PLACE]
    columns = [files, *places, *grouped, *chained, *nodes, stage.origins, stage.kernels]
    header = {
        "name": stage.name,
        "text": stage.text,
        "words": [*words],
        "counts": [*counts],
        "columns": [*map(len, columns)],
    }
    return frame(header, array("i", chain.from_iterable(columns)).tobytes())


def decode_stage(data: bytes) -> Stage:
    """Return the inverse of `encode_stage`. Raises ProtocolError."""
    try:
        raw, body = read_frame(BytesIO(data).read) or ({}, b"")
        header: dict[str, Any] = readable(raw)
        words: list[Any] = header["words"]
        counts: list[Any] = header["counts"]
        numbers = array("i", body)
        if {type(header["name"]), type(header["text"])} != {str} or sum(header["columns"]) != len(numbers):
            raise ValueError("a stage without a name, or whose columns do not match its header")
        if min(numbers, default=0) < 0:
            raise ValueError("an invalid row or place number")
        columns = (numbers[start:end] for start, end in pairwise(accumulate(header["columns"], initial=0)))

        def column(table: list[T]) -> Iterator[T]:
            return map(table.__getitem__, next(columns))

        def groups(table: list[T]) -> list[tuple[T, ...]]:
            sizes = next(columns)
            return [*_grouped(column(table), sizes)]

        spans = _instances(Span, [[*column(words)], *islice(columns, len(_PLACE))])
        tables = _tables(words, groups(words), groups(spans), counts)
        columns_of_nodes: list[Sequence[Any]] = [[*column(table)] for table in tables]
        _require_few(columns_of_nodes)
        nodes = _instances(Node, columns_of_nodes)
        _require_texts(words, nodes)
        if any(type(number) is not int or number < 0 for number in counts):
            raise ValueError("a count that is not a number")
        return Stage(header["name"], tuple(nodes), header["text"], tuple(next(columns)), tuple(next(columns)))
    except (ValueError, KeyError, IndexError, TypeError, StopIteration) as error:
        raise ProtocolError(f"not a stage: {data[:80]!r}") from error


def _require_few(columns: list[Sequence[Any]]) -> None:
    """Raise ValueError for more nodes, or lists of them that are longer together, than any graph has."""
    lists = (column for column in columns if column and type(column[0]) is tuple)
    if len(columns[0]) > MAX_NODES or sum(map(len, chain.from_iterable(lists))) > MAX_REFERENCES:
        raise ValueError("a stage of too many nodes")


def _require_texts(words: list[Any], nodes: list[Node]) -> None:
    """Raise ValueError unless all words are text (None for specs of non-tensors), and operations are those of FX."""
    if {*map(type, words)} - {str, type(None)}:
        raise ValueError("a word that is not a string")
    texts = chain.from_iterable((node.name, node.target, node.comment, *node.args) for node in nodes)
    if None in words and any(type(text) is not str for text in texts):
        raise ValueError("a node without a name")
    if {node.op for node in nodes} - {*get_args(NodeOp)}:
        raise ValueError("a node with an unknown operation")


_PLACE = ("line", "col", "end_line", "end_col")


def _instances(type_: type[T], columns: list[Sequence[Any]]) -> list[T]:
    """Return instances of a frozen dataclass from a column for each field, three times as fast as its constructor.

    Raises ValueError if columns differ in length.
    """
    instances = [*map(object.__new__, repeat(type_, len(columns[0])))]
    fields = [*map(vars, instances)]
    for name, column in zip(_field_names(type_), columns, strict=True):
        for attributes, value in zip(fields, column, strict=True):
            attributes[name] = value
    return instances


def _numbering() -> defaultdict[Any, int]:
    """Return a table that numbers its keys from 0, in the order of first access."""
    table: defaultdict[Any, int] = defaultdict()
    table.default_factory = table.__len__
    return table


def _tables(words: Any, groups: Any, chains: Any, counts: Any) -> list[Any]:
    """Return the table that numbers each field of a node."""
    tables = {
        "args": groups,
        "inputs": groups,
        "users": groups,
        "spans": chains,
        "flops": counts,
        "moved_bytes": counts,
        "sent_bytes": counts,
    }
    return [tables.get(name, words) for name in _field_names(Node)]


def _flat(groups: Iterable[tuple[Any, ...]], table: defaultdict[Any, int]) -> tuple[list[int], list[int]]:
    """Return the sizes of groups, and the numbers of their items, one group after the other."""
    return [len(group) for group in groups], [table[item] for group in groups for item in group]


def _grouped(items: Iterable[T], sizes: Iterable[int]) -> Iterator[tuple[T, ...]]:
    """Split consecutive items into groups of the given sizes."""
    return map(tuple, map(islice, repeat(iter(items)), sizes))


@cache
def _field_names(type_: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(type_))


@cache
def _decoder(type_: Any) -> Callable[[Any], Any]:
    """Return a function that converts JSON data to `type_`, and raises TypeError for data of another shape."""
    if dataclasses.is_dataclass(type_):
        hints = get_type_hints(type_)
        decoders = {f.name: _decoder(hints[f.name]) for f in dataclasses.fields(type_)}
        make = cast("Callable[..., Any]", type_)
        return lambda data: make(**{k: decoders[k](v) for k, v in data.items() if k in decoders})
    origin, args = get_origin(type_), get_args(type_)
    if origin is tuple:
        return _tuple_decoder(args)
    if origin is dict:
        value = _decoder(args[1])
        return lambda data: {k: value(v) for k, v in data.items()}
    if origin in (Union, types.UnionType) and type(None) in args:
        inner = _decoder(next(a for a in args if a is not type(None)))
        return lambda data: None if data is None else inner(data)
    if origin is Literal:
        values = frozenset(args)
        return lambda data: data if data in values else _refuse(data, type_)
    if type_ in _SCALARS:
        classes = _SCALARS[type_]
        return lambda data: data if type(data) in classes else _refuse(data, type_)
    raise TypeError(f"no decoder for {type_}")


_SCALARS: dict[Any, tuple[type, ...]] = {str: (str,), int: (int,), float: (float, int), bool: (bool,)}
"""The classes of JSON data that each type accepts; true is not a number."""


def _tuple_decoder(items: tuple[Any, ...]) -> Callable[[Any], Any]:
    if items[1:] == (...,):
        item = _decoder(items[0])
        return lambda data: tuple([item(v) for v in data]) if type(data) in (list, tuple) else _refuse(data, tuple)
    decoders = [_decoder(item) for item in items]
    return lambda data: tuple([decode(v) for decode, v in zip(decoders, data, strict=True)])


def _refuse(data: Any, type_: Any) -> Any:
    raise TypeError(f"{str(data)[:80]!r} is not a {type_}")
