"""Tensor specs (`f32[8, 128]`) and the `# fx:` comment, as text. Standard library only.

    spec     := dtype "[" [size ("," size)*] "]" [strides] ["@" device] [".detach()"]
    comment  := item ("," item)*          item := "init(" arguments ")" | mode | context | name "=" value
    mode     := "eval()" | "train()"      of a module, which is in training mode otherwise
    context  := "no_grad()" | "autocast(" device, dtype ")" | …    as in `CallContext`
    value    := spec | Python literal | tuple, list or dict of values | any other Python expression

A size is a number, or a name for a dynamic dimension. A floating-point tensor requires a gradient, unless it is
detached.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field, replace
from typing import Any, cast

from fx_lsp.model import PLAIN_CONTEXT, CallContext
from fx_lsp.syntax import parse_expression

DTYPES: dict[str, str] = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "f8e8m0fnu": "float8_e8m0fnu",
    "c32": "complex32",
    "c64": "complex64",
    "c128": "complex128",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u64": "uint64",
    "u32": "uint32",
    "u16": "uint16",
    "u8": "uint8",
    "b8": "bool",
}
"""Short names as FX prints them, mapped to the attribute of `torch`."""

FLOATS = frozenset(name for name, long in DTYPES.items() if long.startswith(("float", "bfloat", "complex")))
"""The dtypes of tensors that can require a gradient."""

SHORT_NAMES: dict[str, str] = {long: short for short, long in DTYPES.items()}


@dataclass(frozen=True)
class TensorSpec:
    """Describe a tensor to create: `dtype` by its short name; `strides` counts elements, None for contiguous.

    A `detached` one requires no gradient.
    """

    dtype: str
    sizes: tuple[int | str, ...]
    strides: tuple[int | str, ...] | None = None
    device: str | None = None
    detached: bool = False

    def __str__(self) -> str:
        strides = "" if self.strides is None else f"({', '.join(map(str, self.strides))})"
        device = f"@{self.device}" if self.device else ""
        return f"{self.dtype}[{', '.join(map(str, self.sizes))}]{strides}{device}{DETACHED if self.detached else ''}"


@dataclass(frozen=True)
class Expression:
    """Hold a value that is neither a literal nor a spec: Python to evaluate in the user's module."""

    text: str


@dataclass(frozen=True)
class Comment:
    """Hold a parsed `# fx:` comment: arguments by parameter name, and constructor arguments.

    Values are literals, `TensorSpec`, `Expression`, or tuples, lists and dicts of them. `training` is the mode of the
    module, and `context` that of the call, None if the comment does not set it.
    """

    args: dict[str, Any] = field(default_factory=dict[str, Any])
    init: dict[str, Any] | None = None
    training: bool | None = None
    context: CallContext | None = None


@dataclass(frozen=True)
class CommentError:
    """Describe an error in a `# fx:` comment in one sentence; columns count UTF-8 bytes of the comment's text."""

    message: str
    col: int
    end_col: int


_IGNORED_END = r"(?:because\b[^#]*)?(?=#|$)"
FX_COMMENT = re.compile(rf"#\s*fx:(?!\s*ignore\s*(?:\[[^\]]*\]\s*)?{_IGNORED_END})\s*(.*?)\s*$")
"""The comment with the inputs for tracing a definition; group 1 is the text for `parse_comment`."""
IGNORE_COMMENT = re.compile(rf"#\s*fx:\s*ignore\s*(?:\[([^\]]*)\]\s*)?{_IGNORED_END}")
"""The comment that suppresses problems on a line; group 1 are the codes to suppress. A reason after `because` may end
it.
"""

MODE = "self.training"
"""The name of a module's mode among the inputs of a trace."""
MODES = {"eval": False, "train": True}
"""The items that set a module's mode, named after the methods, and the resulting value of `training`."""
DETACHED = ".detach()"
"""What follows a spec whose tensor requires no gradient."""
CONTEXTS: dict[str, tuple[str, ...]] = {
    "no_grad": (),
    "inference_mode": (),
    "autocast": ("device", "dtype"),
    "set_default_dtype": ("dtype",),
    "set_default_device": ("device",),
    "sdpa_kernel": ("backend",),
    "use_deterministic_algorithms": (),
    "set_float32_matmul_precision": ("precision",),
}
"""The items that set the context of a call, named after PyTorch's functions, and their arguments."""
_ALLOWED = {
    "dtype": frozenset({"f64", "f32", "f16", "bf16"}),
    "precision": frozenset({"highest", "high", "medium"}),
    "backend": frozenset({"math", "flash_attention", "efficient_attention", "cudnn_attention"}),
}

_PREFIX = "_("
_SCALAR = re.compile(r"\b(" + "|".join(DTYPES) + r")(\[\s*\])")
_BRACKET = re.compile(r"[\[\](){}]|'[^']*'?|\"[^\"]*\"?")
_DEVICE = re.compile(r"@\s*([a-z]+):(\d+)")


def parse_comment(text: str) -> Comment | CommentError:
    """Read the text after `# fx:`."""
    try:
        return _parse(text)
    except (RecursionError, MemoryError):
        return CommentError("the comment is nested too deeply", 0, len(text.encode()))


def _parse(text: str) -> Comment | CommentError:
    try:
        call = parse_expression(f"{_PREFIX}{_as_python(text)})")
    except (SyntaxError, ValueError) as error:
        return _syntax_error(text, error)
    if not isinstance(call, ast.Call):
        return CommentError("not `name=value, …`: unmatched ')'", 0, len(text.encode()))
    args: dict[str, Any] = {}
    init: dict[str, Any] | None = None
    training: bool | None = None
    context: CallContext | None = None
    try:
        for item in call.args:
            called = item.func.id if isinstance(item, ast.Call) and isinstance(item.func, ast.Name) else ""
            _require_parentheses(item)
            if not isinstance(item, ast.Call) or called not in ("init", *MODES, *CONTEXTS):
                raise _UnreadableValue(
                    item, "write every input as `name=value`; constructor arguments as `init(name=value)`"
                )
            if called in MODES and (item.args or item.keywords):
                raise _UnreadableValue(item, f"`{called}()` takes no arguments")
            if called in MODES:
                if training is not None:
                    raise _UnreadableValue(item, "the mode is written twice")
                training = MODES[called]
                continue
            if called in CONTEXTS:
                context = _in_context(context or PLAIN_CONTEXT, called, item)
                continue
            if item.args:
                raise _UnreadableValue(item.args[0], "constructor arguments need their names: `init(dim=64)`")
            init = _keywords(item.keywords)
        args = _keywords(call.keywords)
    except _UnreadableValue as bad:
        start, end = bad.node.col_offset, bad.node.end_col_offset or bad.node.col_offset + 1
        return CommentError(bad.message, max(start - len(_PREFIX), 0), max(end - len(_PREFIX), 1))
    return Comment(args, init, training, context)


def _require_parentheses(item: ast.expr) -> None:
    if isinstance(item, ast.Name) and item.id in (*MODES, *CONTEXTS):
        subject = "the mode" if item.id in MODES else "it"
        raise _UnreadableValue(item, f"write {subject} as `{item.id}({', '.join(CONTEXTS.get(item.id, ()))})`")


def _in_context(context: CallContext, name: str, call: ast.Call) -> CallContext:
    """Return a context with one more setting, `name` of `CONTEXTS`."""
    names, values = CONTEXTS[name], [_word(argument) for argument in call.args]
    kinds = names if name != "sdpa_kernel" else names * max(len(values), 1)
    if call.keywords or len(values) != len(kinds):
        raise _UnreadableValue(call, f"write it as `{name}({', '.join(names)})`")
    for kind, value, argument in zip(kinds, values, call.args, strict=True):
        allowed = _ALLOWED.get(kind, frozenset())
        if not value or (allowed and value not in allowed):
            names_of_kind = f": one of {', '.join(sorted(allowed))}" if allowed else ""
            raise _UnreadableValue(argument, f"not a {kind}{names_of_kind}")
    match name:
        case "no_grad" | "inference_mode":
            return replace(context, grad=name)
        case "autocast":
            return replace(context, autocast=(*context.autocast, (values[0], values[1])))
        case "set_default_dtype":
            return replace(context, dtype=values[0])
        case "set_default_device":
            return replace(context, device=values[0])
        case "sdpa_kernel":
            return replace(context, sdpa=tuple(values))
        case "use_deterministic_algorithms":
            return replace(context, deterministic=True)
        case _:
            return replace(context, precision=values[0])


def _word(node: ast.expr) -> str:
    """Return a name, or a text, that is an argument: `"cuda"`, `bf16`, `torch.bfloat16`; "" for any other."""
    if isinstance(node, ast.Attribute):
        return SHORT_NAMES.get(node.attr, node.attr)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return node.id if isinstance(node, ast.Name) else ""


def names_used(comment: Comment) -> frozenset[str]:
    """Return the names that the expressions in a comment look up in the user's module."""
    pending: list[Any] = [comment.args, comment.init]
    names: set[str] = set()
    while pending:
        value = pending.pop()
        if isinstance(value, Expression):
            names |= {node.id for node in ast.walk(parse_expression(value.text)) if isinstance(node, ast.Name)}
        elif isinstance(value, dict):
            pending.extend(cast("dict[Any, Any]", value).values())
        elif isinstance(value, (list, tuple)):
            pending.extend(cast("list[Any]", value))
    return frozenset(names)


@dataclass(frozen=True)
class Item:
    """Locate one `name=value` of a comment; columns count UTF-8 bytes and are those of the name."""

    name: str
    value: str
    in_init: bool
    col: int
    end_col: int


@dataclass(frozen=True)
class Items:
    """Locate every `name=value` of a comment in order; `init` are the columns of the word `init`, if present.

    `mode` is the item `eval()` or `train()` with its columns, if present; it has no value and no parentheses. `context`
    are the texts of the items that set the context of the call.
    """

    items: tuple[Item, ...] = ()
    init: tuple[int, int] | None = None
    mode: Item | None = None
    context: tuple[str, ...] = ()


def comment_items(text: str) -> Items:
    """Return the places of the names in a comment; nothing for a text that `parse_comment` rejects."""
    if isinstance(parse_comment(text), CommentError):
        return Items()
    call = parse_expression(f"{_PREFIX}{_as_python(text)})")
    assert isinstance(call, ast.Call)
    data = text.encode()
    calls = [
        (item, item.func.id) for item in call.args if isinstance(item, ast.Call) and isinstance(item.func, ast.Name)
    ]
    constructors = [item for item, name in calls if name == "init"]
    modes = [_mode(item, name) for item, name in calls if name in MODES]
    groups = [(True, c.keywords) for c in constructors] + [(False, call.keywords)]
    items = [_item(keyword, data, in_init) for in_init, keywords in groups for keyword in keywords]
    start = min((c.col_offset - len(_PREFIX) for c in constructors), default=None)
    init = None if start is None else (start, start + len("init"))
    context = tuple(ast.unparse(item).replace("'", '"') for item, name in calls if name in CONTEXTS)
    return Items(tuple(sorted(items, key=lambda item: item.col)), init, modes[0] if modes else None, context)


def _mode(call: ast.Call, name: str) -> Item:
    start = call.col_offset - len(_PREFIX)
    return Item(name, "", False, start, (call.end_col_offset or call.col_offset) - len(_PREFIX))


def _item(keyword: ast.keyword, data: bytes, in_init: bool) -> Item:
    name = keyword.arg or ""
    col, value = keyword.col_offset - len(_PREFIX), keyword.value
    end = (value.end_col_offset or 0) - len(_PREFIX)
    # The parsed text has `f32 ` in place of `f32[]`; its end is that of the name.
    empty = re.match(rb"\[\s*\]", data[end:]) if isinstance(value, ast.Name) else None
    text = data[value.col_offset - len(_PREFIX) : end + (empty.end() if empty else 0)].decode()
    return Item(name, text, in_init, col, col + len(name.encode()))


def parse_spec(text: str) -> TensorSpec | None:
    """Read one tensor spec; None for any other text."""
    parsed = parse_comment(f"spec={text}")
    spec = parsed.args.get("spec") if isinstance(parsed, Comment) else None
    return spec if isinstance(spec, TensorSpec) else None


def _syntax_error(text: str, error: SyntaxError | ValueError) -> CommentError:
    """Return the place and reason of a syntax error in terms of the comment alone, without the brackets around it."""
    message = getattr(error, "msg", str(error))
    offset, end = getattr(error, "offset", None) or 1, getattr(error, "end_offset", None) or 0
    start, stop = offset - 1 - len(_PREFIX), end - 1 - len(_PREFIX)
    opened = _open_bracket(text)
    if message.startswith("positional argument follows"):
        message, start, stop = (
            "`init(…)` and `eval()` come first, and every input is written as `name=value`",
            0,
            len(text),
        )
    elif opened is not None and start >= len(text):
        message, start, stop = f"'{text[opened]}' was never closed", opened, opened + 1
    start = min(max(start, 0), max(len(text) - 1, 0))
    stop = min(stop, len(text)) if stop > start else len(text)
    return CommentError(f"not `name=value, …`: {message}", len(text[:start].encode()), len(text[:stop].encode()))


def _open_bracket(text: str) -> int | None:
    """Return the offset of the innermost bracket that `text` leaves open, or None."""
    opened: list[int] = []
    for bracket in _BRACKET.finditer(text):
        if bracket[0] in "([{":
            opened.append(bracket.start())
        elif bracket[0] in ")]}" and opened:
            opened.pop()
    return opened[-1] if opened else None


def _as_python(text: str) -> str:
    """Return the text with the forms that Python cannot parse, `f32[]` and `@cuda:0`, replaced at the same width."""
    text = _SCALAR.sub(lambda m: m[1] + " " * len(m[2]), text)
    return _DEVICE.sub(lambda m: f"{m[0].replace(':', '_')}", text)


class _UnreadableValue(Exception):
    def __init__(self, node: ast.expr, message: str) -> None:
        self.node, self.message = node, message


def _keywords(keywords: list[ast.keyword]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for keyword in keywords:
        if keyword.arg is None:
            raise _UnreadableValue(keyword.value, "`**` is not allowed here: name each input")
        values[keyword.arg] = _value(keyword.value)
    return values


def _value(node: ast.expr) -> Any:
    attached = _attached(node)
    spec = _tensor_spec(attached or node)
    if spec is not None:
        return replace(spec, detached=attached is not None)
    if isinstance(node, ast.Tuple):
        return tuple(_value(e) for e in node.elts)
    if isinstance(node, ast.List):
        return [_value(e) for e in node.elts]
    try:
        if isinstance(node, ast.Dict) and None not in node.keys:
            keys = [ast.literal_eval(key) for key in node.keys if key is not None]
            return dict(zip(keys, map(_value, node.values), strict=True))
        return ast.literal_eval(node)
    except (ValueError, TypeError):  # it is no literal, or has an unhashable key
        return Expression(ast.unparse(node))


def _attached(node: ast.expr) -> ast.expr | None:
    """Return `value` of `value.detach()`; None for any other expression."""
    if isinstance(node, ast.BinOp) and (device := _attached(node.right)) is not None:  # `f32[8]@(cuda.detach())`
        return ast.copy_location(ast.BinOp(node.left, node.op, device), node)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not (node.args or node.keywords):
        return node.func.value if node.func.attr == "detach" else None
    return None


def _tensor_spec(node: ast.expr) -> TensorSpec | None:
    """Return the spec that an expression denotes: `f32`, `f32[8, N]`, `f32[8, N](1, 8)@cuda`; None for any other."""
    device = strides = None
    core = node
    if isinstance(core, ast.BinOp) and isinstance(core.op, ast.MatMult):
        device, core = ast.unparse(core.right).replace("_", ":"), core.left
    if isinstance(core, ast.Call) and _is_spec(core.func):
        strides, core = tuple(_integer(a) for a in core.args), core.func
    if isinstance(core, ast.Name) and core.id in DTYPES:
        return TensorSpec(core.id, (), None, device)
    if not isinstance(core, ast.Subscript) or not isinstance(core.value, ast.Name):
        return None
    if not _is_spec(core):
        if _looks_like_dtype(core.value.id):
            alike = [name for name in DTYPES if name[0] == core.value.id[0]]
            raise _UnreadableValue(core.value, f"unknown dtype `{core.value.id}`; one of {', '.join(alike)}")
        return None
    sizes = core.slice.elts if isinstance(core.slice, ast.Tuple) else [core.slice]
    parsed = tuple(s.id if isinstance(s, ast.Name) else _integer(s) for s in sizes)
    if strides is not None and len(strides) != len(parsed):
        raise _UnreadableValue(node, f"{len(parsed)} sizes but {len(strides)} strides")
    return TensorSpec(core.value.id, parsed, strides, device)


def _is_spec(node: ast.expr) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in DTYPES


def _looks_like_dtype(name: str) -> bool:
    return re.fullmatch(r"(f|bf|i|u|b|c|int|float|bfloat|uint|bool)\d*(e\d+m\d+\w*)?", name) is not None


def _integer(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int and node.value >= 0:
        return node.value
    raise _UnreadableValue(node, "a size must be a number, or a name for a dynamic dimension")
