"""Decide by syntax alone whether a function looks like tensor code, or like a program that must not run on a guess."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fx_lsp.syntax import FunctionNode, axis_terms
from fx_lsp.tracing.source.parsing import walk

_TENSOR_WORD = re.compile(r"\b\w*Tensor\b")

_TENSOR_NAMESPACES = ("torch", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special", "torch.ops")
_NOT_ON_TENSORS = re.compile(r"torch\.(load|save|compile|device|manual_seed|seed|no_grad|(set|get|is|use)_\w+)$")
_CONVERTS = re.compile(r"torch\.(tensor|as_tensor|asarray|from_numpy|frombuffer)$")
"""Functions that convert other values to a tensor."""
_OF_ARRAYS = re.compile(r"torch\.(from_numpy|frombuffer)$|numpy\.")
"""Functions that take arrays, so that their result does not show the function to receive tensors."""
_MAKES = re.compile(r"torch\.(zeros|ones|empty|full|arange|linspace|logspace|eye|rand\w*|\w+_window|tri[lu]_indices)$")
"""Functions that create a tensor from sizes and numbers."""
_DTYPE = re.compile(r"torch\.(b?float|int|uint|bool|complex|half|double|long|short)\d*$")

_TENSOR_ATTRIBUTES = frozenset({"mT", "mH", "requires_grad", "is_cuda"})
_ARRAY_ATTRIBUTES = frozenset({"shape", "ndim", "T", "real", "imag"})
# fmt: off
TENSOR_METHODS = frozenset({
    "abs", "addmm", "all", "amax", "amin", "any", "argmax", "argmin", "argsort", "baddbmm", "bfloat16", "bmm", "ceil",
    "chunk", "clamp", "clone", "contiguous", "cos", "cumprod", "cumsum", "detach", "diagonal", "dim", "div", "double",
    "einsum", "eq", "erf", "exp", "expand", "expand_as", "flatten", "flip", "float", "floor", "gather", "ge", "gt",
    "half", "index_add", "index_select", "is_floating_point", "isnan", "layer_norm", "le", "log", "log1p",
    "log_softmax", "logsumexp", "long", "lt", "masked_fill", "masked_select", "matmul", "max", "mean", "min", "movedim",
    "mul", "narrow", "ne", "neg", "new_empty", "new_full", "new_ones", "new_tensor", "new_zeros", "nonzero", "norm",
    "numel", "permute", "pow", "prod", "ravel", "relu", "repeat", "repeat_interleave", "reshape", "roll", "round",
    "rsqrt", "scatter", "scatter_add", "select", "sigmoid", "sign", "sin", "size",
    "softmax", "sqrt", "square", "squeeze", "std", "sum", "swapaxes", "t", "tanh", "tile", "topk", "transpose",
    "tril", "triu", "type_as", "unbind", "unflatten", "unfold", "unsqueeze", "var", "view", "view_as", "where",
})
ARRAY_METHODS = frozenset({
    "abs", "all", "any", "argmax", "argmin", "argsort", "cumprod", "cumsum", "diagonal", "eq", "flatten", "ge", "gt",
    "le", "lt", "max", "mean", "min", "ne", "nonzero", "prod", "ravel", "repeat", "reshape", "round", "squeeze",
    "std", "sum", "swapaxes", "transpose", "var", "where",
})
# fmt: on
"""Methods of tensors that arrays, tables and the like also have."""

_PROGRAM_PARAMETERS = re.compile(
    r"(^|_)(optim|optimizer|(data)?loader|dataset|scheduler|tokenizer|logger|writer|argv|args|path|dir|directory|file"
    r"|filename|checkpoint|url)s?$"
)
_PROGRAM_ANNOTATIONS = re.compile(r"\b(\w*Optimizer|\w*DataLoader|Namespace|\w*Path|PathLike|TextIO|BinaryIO)\b")
_PROGRAM_METHODS = frozenset({"backward", "zero_grad", "save_pretrained", "parse_args"})
_PROGRAM_BUILTINS = frozenset({"open", "input", "exit", "quit", "exec", "eval", "breakpoint"})
_PROGRAM_MODULES = frozenset({"argparse", "http", "multiprocessing", "os", "shutil", "socket", "subprocess", "urllib"})
_PROGRAM_CALLS = re.compile(
    r"(torch\.(load|save)|sys\.exit|torch\.multiprocessing\.\w+|torch\.distributed\.(init|destroy)_process_group)$"
)
_HARMLESS_CALLS = re.compile(r"os\.(getenv|environ|path|cpu_count)\b")


@dataclass(frozen=True)
class Strangers:
    """Hold the parameters of a function that are not tensors.

    `certain` are arrays, images or text, whatever is computed from them. `doubtful` ones have uses that no tensor has,
    so that uses common to arrays and tensors (`x.shape`, `x.mean(0)`) show nothing. `images` have a width and a height
    (`w, h = image.size`), so they are neither a tensor nor an array.
    """

    certain: frozenset[str]
    doubtful: frozenset[str]
    images: frozenset[str]


@dataclass(frozen=True)
class Look:
    """Hold the classification of a function: `tensors` if it handles tensors, `program` if it must not run on a guess.

    `foreign` is True if all its required arguments are arrays, text and other non-tensors. `evident` is True if it has
    uses that only tensors have, not arrays and numbers. `calls` are the plain names it calls, `self_calls` the methods
    of its own instance; both lead to further functions.
    """

    tensors: bool
    evident: bool
    program: bool
    calls: frozenset[str]
    self_calls: frozenset[str]
    foreign: bool = False


def parameters(function: FunctionNode, skip_first: bool) -> list[ast.arg]:
    """Return all parameters in order, without `self`/`cls` when `skip_first`."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args][1 if skip_first else 0 :]
    variadic = [arg for arg in (arguments.vararg, arguments.kwarg) if arg is not None]
    return [*positional, *arguments.kwonlyargs, *variadic]


def dotted(node: ast.AST, imports: Mapping[str, str]) -> str | None:
    """Return `torch.nn.Linear` for the expression `nn.Linear` if `nn` is imported so; None if it is not a
    dotted name.
    """
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([imports.get(node.id, node.id), *reversed(parts)])


def collect_imports(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Return the full name of each imported name: `{"F": "torch.nn.functional"}`; relative imports keep their dots."""
    imports: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                imports[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            prefix = "." * node.level + (node.module or "")
            for alias in node.names:
                imports[alias.asname or alias.name] = f"{prefix}.{alias.name}"
    return imports


def imports_torch(imports: Mapping[str, str]) -> bool:
    """Return True if a file with these imports imports torch."""
    return any(name.partition(".")[0] == "torch" for name in imports.values())


def is_stdlib(name: str) -> bool:
    """Return True if a dotted name is in Python's standard library."""
    return name.partition(".")[0] in sys.stdlib_module_names


def look_at(
    function: FunctionNode,
    params: list[ast.arg],
    imports: Mapping[str, str],
    layers: Collection[str],
    others: Strangers,
) -> Look:
    """Classify one function. `layers` are attributes of `self` that hold modules, `others` parameters that are not
    tensors.
    """
    uses_torch = imports_torch(imports)
    nodes = list(walk(*function.body))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    numbers = {param.arg for param in params if is_number(param.annotation)}
    texts = any(is_text(param.annotation) for param in params)
    names = {param.arg for param in params} - _modules_among(nodes, imports)
    names -= numbers if texts else set()  # lengths of text, and the like
    holding = _holding(nodes, names, numbers, others)
    evident = _mentions_tensors(function, params, texts) or (
        uses_torch
        and (
            any(_is_tensor_call(call, imports, layers, holding.no_arrays) for call in calls)
            or any(is_tensor_use(node, holding.no_arrays) for node in nodes)
            or (not texts and any(_makes_tensor(call, imports, holding.parameters) for call in calls))
        )
    )
    return Look(
        tensors=evident or (uses_torch and _is_likely(function, nodes, holding, imports)),
        evident=evident,
        program=_is_program(function, params, calls, imports),
        calls=frozenset(call.func.id for call in calls if isinstance(call.func, ast.Name)),
        self_calls=_self_calls(calls, holding.no_arrays),
    )


def _self_calls(calls: Iterable[ast.Call], names: Collection[str]) -> frozenset[str]:
    """Return the methods of its own instance to which a function passes some of `names`."""
    handing = (call for call in calls if mentions_any([*call.args, *(k.value for k in call.keywords)], names))
    return frozenset(name for call in handing if (name := _self_attribute(call.func)))


@dataclass(frozen=True)
class _Holding:
    """Hold the names of a function with values derived from its parameters, without arrays, doubtful ones and
    numbers.
    """

    parameters: set[str]
    no_arrays: set[str]
    no_doubtful: set[str]
    no_numbers: set[str]


def _holding(
    nodes: Iterable[ast.AST],
    names: set[str],
    numbers: Collection[str],
    others: Strangers,
) -> _Holding:
    arrays, doubtful = others.certain, others.doubtful
    assigned = [node for node in nodes if isinstance(node, (ast.Assign, ast.AugAssign, ast.For))]
    everything = derived_from(assigned, names)
    no_arrays = derived_from(assigned, names.difference(arrays)) if arrays else everything
    no_doubtful = derived_from(assigned, names.difference(arrays, doubtful)) if doubtful else no_arrays
    no_numbers = derived_from(assigned, names.difference(arrays, numbers)) if numbers else no_arrays
    return _Holding(everything, no_arrays, no_doubtful, no_numbers)


def _mentions_tensors(function: FunctionNode, params: list[ast.arg], texts: bool) -> bool:
    """Return True if annotations show that a function takes tensors or, if it takes no `texts`, that it returns one."""
    takes = any(mentions_tensor(param.annotation) for param in params)
    return takes or (not texts and mentions_tensor(function.returns))


def _is_likely(function: FunctionNode, nodes: Sequence[ast.AST], holding: _Holding, imports: Mapping[str, str]) -> bool:
    """Return True if a function of a file that imports torch has uses that tensors and arrays share."""
    if any(is_array_use(node, holding.no_doubtful) for node in nodes):
        return True
    if _uses_tensors(nodes, imports) and any(is_arithmetic(node, holding.no_arrays) for node in nodes):
        return True
    decorated = _mentions_torch(walk(*function.decorator_list), imports)
    return decorated and any(is_arithmetic(node, holding.no_numbers) for node in nodes)


def _is_program(
    function: FunctionNode, params: list[ast.arg], calls: Iterable[ast.Call], imports: Mapping[str, str]
) -> bool:
    return (
        function.name == "main"
        or function.name.startswith("test_")
        or any(_is_program_parameter(param) for param in params)
        or any(_is_program_call(call, imports) for call in calls)
        or _only_prints(function.body)
    )


def receives_parameter(function: FunctionNode, params: list[ast.arg], callees: Collection[str]) -> bool:
    """Return True if `function` passes a value derived from its parameters to one of the functions named `callees`."""
    nodes = list(walk(*function.body))
    derived = derived_from(nodes, {param.arg for param in params})
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in callees
        and mentions_any([*node.args, *(k.value for k in node.keywords)], derived)
        for node in nodes
    )


def _modules_among(nodes: Iterable[ast.AST], imports: Mapping[str, str]) -> set[str]:
    """Return the names that the code itself checks to be modules: `isinstance(module, nn.Linear)`."""
    return {
        node.args[0].id
        for node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        and len(node.args) == 2
        and isinstance(node.args[0], ast.Name)
        and any(_names_a_module(dotted(kind, imports) or "") for kind in walk(node.args[1]))
    }


def _names_a_module(name: str) -> bool:
    defined_here = "." not in name and name[:1].isupper()
    return defined_here or name.startswith("torch.nn.")


def derived_from(nodes: Iterable[ast.AST], names: set[str]) -> set[str]:
    assigned = sorted((n for n in nodes if isinstance(n, (ast.Assign, ast.AugAssign, ast.For))), key=lambda n: n.lineno)
    derived = set(names)
    for node in assigned:
        source = node.iter if isinstance(node, ast.For) else node.value
        if mentions_any([source], derived):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            derived.update(n.id for n in walk(*targets) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return derived


def mentions_any(nodes: Iterable[ast.AST], names: Collection[str]) -> bool:
    return any(isinstance(node, ast.Name) and node.id in names for node in walk(*nodes))


_NUMBERS = frozenset({"int", "float", "bool", "str", "complex", "None"})


def is_number(annotation: ast.expr | None) -> bool:
    """Return True if an annotation is a number, a string or None."""
    text = annotation.value if isinstance(annotation, ast.Constant) else annotation
    name = text.id if isinstance(text, ast.Name) else str(text)
    return name in _NUMBERS if annotation is not None else False


_TEXTS = frozenset({"str", "List", "list", "Sequence", "Iterable", "Tuple", "tuple", "Union"})


def is_text(annotation: ast.expr | None) -> bool:
    """Return True if an annotation is text, or several: `str | list[str]`."""
    words = {n.id for n in walk(annotation) if isinstance(n, ast.Name)} if annotation is not None else set[str]()
    return "str" in words and words <= _TEXTS


def mentions_tensor(annotation: ast.AST | None) -> bool:
    return annotation is not None and _annotation_matches(annotation, _TENSOR_WORD)


def _annotation_matches(annotation: ast.AST, pattern: re.Pattern[str]) -> bool:
    for node in walk(annotation):
        word = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None
        if word is None and isinstance(node, ast.Constant) and isinstance(node.value, str):
            word = node.value
        if word is not None and pattern.search(word):
            return True
    return False


def _is_program_parameter(param: ast.arg) -> bool:
    if param.annotation is not None:
        if mentions_tensor(param.annotation):
            return False
        if _annotation_matches(param.annotation, _PROGRAM_ANNOTATIONS):
            return True
    return bool(_PROGRAM_PARAMETERS.search(param.arg)) and param.arg not in ("args", "kwargs")


def _is_program_call(call: ast.Call, imports: Mapping[str, str]) -> bool:
    if isinstance(call.func, ast.Name) and call.func.id in _PROGRAM_BUILTINS and call.func.id not in imports:
        return True
    if isinstance(call.func, ast.Attribute) and (
        call.func.attr in _PROGRAM_METHODS or (call.func.attr == "step" and not call.args)
    ):
        return True
    name = dotted(call.func, imports)
    if name is None or _HARMLESS_CALLS.match(name):
        return False
    first = call.func
    while isinstance(first, ast.Attribute):
        first = first.value
    imported = isinstance(first, ast.Name) and first.id in imports
    return imported and (name.partition(".")[0] in _PROGRAM_MODULES or bool(_PROGRAM_CALLS.match(name)))


def _only_prints(body: list[ast.stmt]) -> bool:
    return all(
        isinstance(node, ast.Expr)
        and (
            isinstance(node.value, ast.Constant)
            or (
                isinstance(node.value, ast.Call)
                and isinstance(node.value.func, ast.Name)
                and node.value.func.id == "print"
            )
        )
        for node in body
    )


def _is_tensor_call(
    call: ast.Call,
    imports: Mapping[str, str],
    layers: Collection[str],
    derived: Collection[str],
) -> bool:
    if _CONVERTS.match(dotted(call.func, imports) or ""):
        keywords = mentions_any([keyword.value for keyword in call.keywords], derived)  # device=x.device
        arrays = any(_OF_ARRAYS.match(dotted(node, imports) or "") for node in walk(call.func, *call.args))
        return keywords or (not arrays and mentions_any(call.args, derived))
    if not mentions_any([*call.args, *(k.value for k in call.keywords)], derived):
        return False
    if _self_attribute(call.func) in layers:
        return True
    if any(isinstance(arg, ast.Constant) and isinstance(arg.value, str) and axis_terms(arg.value) for arg in call.args):
        return True
    name = dotted(call.func, imports) or ""
    namespace, _, function = name.rpartition(".")
    if function == "apply" and namespace[:1].isupper():  # a torch.autograd.Function
        return True
    return is_tensor_function(name)


def _makes_tensor(call: ast.Call, imports: Mapping[str, str], derived: Collection[str]) -> bool:
    """Return True if a call creates a tensor from sizes: `torch.arange(n)`."""
    name = dotted(call.func, imports) or ""
    return bool(_MAKES.match(name)) and mentions_any([*call.args, *(k.value for k in call.keywords)], derived)


def is_tensor_function(name: str) -> bool:
    """Return True if a dotted name is a function of torch on tensors."""
    namespace, _, function = name.rpartition(".")
    if namespace.startswith("torch.distributions"):
        return True
    return (
        (namespace in _TENSOR_NAMESPACES or namespace.startswith("torch.ops."))
        and function[:1].islower()
        and not _NOT_ON_TENSORS.match(name)
    )


def is_tensor_method(name: str) -> bool:
    """Return True if a method of this name shows its object to be a tensor, or (`ARRAY_METHODS`) an array."""
    return name in TENSOR_METHODS or (name.endswith("_") and not name.startswith("_"))


USES = (ast.Attribute, ast.BinOp, ast.Call, ast.Subscript)
"""The nodes that `is_tensor_use` and `is_array_use` may classify."""


def is_tensor_use(node: ast.AST, derived: Collection[str]) -> bool:
    """Return True if an expression uses one of the names `derived` as only tensors are used."""
    if isinstance(node, ast.Attribute) and node.attr in _TENSOR_ATTRIBUTES:
        return isinstance(node.value, ast.Name) and node.value.id in derived
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name, keywords = node.func.attr, {keyword.arg for keyword in node.keywords}
        cast = name == "to" and "dtype" in keywords
        cut = name == "split" and any(isinstance(arg, (ast.List, ast.Tuple)) for arg in node.args)
        swapped = name == "transpose" and len(node.args) == 2
        of_dim = name in ARRAY_METHODS and bool(keywords & {"dim", "keepdim"})
        alone = is_tensor_method(name) and name not in ARRAY_METHODS
        return (alone or cast or cut or swapped or of_dim) and _is_of(node.func.value, derived)
    return False


def is_array_use(node: ast.AST, derived: Collection[str]) -> bool:
    """Return True if an expression uses one of the names `derived` as both tensors and arrays are used."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return mentions_any([node.left, node.right], derived)
    if isinstance(node, ast.Attribute) and node.attr in _ARRAY_ATTRIBUTES:
        return isinstance(node.value, ast.Name) and node.value.id in derived
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Compare):
        return isinstance(node.value, ast.Name) and node.value.id in derived
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in ARRAY_METHODS and _is_of(node.func.value, derived)
    return False


def _is_of(owner: ast.expr, derived: Collection[str]) -> bool:
    if isinstance(owner, ast.BinOp):
        return mentions_any([owner], derived)
    return isinstance(owner, ast.Name) and owner.id in derived


def _mentions_torch(nodes: Iterable[ast.AST], imports: Mapping[str, str]) -> bool:
    return any(isinstance(n, ast.Name) and imports.get(n.id) in _TENSOR_NAMESPACES for n in nodes)


def _uses_tensors(nodes: Iterable[ast.AST], imports: Mapping[str, str]) -> bool:
    """Return True if the nodes call functions of torch on tensors, or name its dtypes."""
    for node in nodes:
        name = dotted(node.func if isinstance(node, ast.Call) else node, imports) or ""
        if _DTYPE.match(name) or (isinstance(node, ast.Call) and is_tensor_function(name)):
            return True
    return False


def is_arithmetic(node: ast.AST, derived: Collection[str]) -> bool:
    """Return True if an expression calculates with one of the names `derived`; text and paths are not
    calculated with.
    """
    if not isinstance(node, (ast.BinOp, ast.AugAssign)) or isinstance(node.op, (ast.FloorDiv, ast.Mod)):
        return False
    sides = list(ast.iter_child_nodes(node))
    text = any(
        isinstance(s, ast.JoinedStr) or (isinstance(s, ast.Constant) and isinstance(s.value, str)) for s in sides
    )
    return not text and any(isinstance(side, ast.Name) and side.id in derived for side in sides)


def _self_attribute(node: ast.AST) -> str | None:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return node.attr
    return None
