"""Record the facts that a single call or subscript shows of its parameters.

`of` returns the facts of the parameter that an expression refers to, or None.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from fx_lsp.syntax import FunctionNode
from fx_lsp.tracer.inputs.evidence.patterns import visit_pattern
from fx_lsp.tracer.inputs.evidence.requirements import shape_of
from fx_lsp.tracer.inputs.plan.facts import Facts


def visit_subscript(node: ast.Subscript, of: Any, named: Any) -> None:
    """Record the facts that `x[…]` shows of `x`, and of the indices."""
    shaped = shape_of(node.value)
    if shaped is not None:
        tensor = named(shaped, node.lineno)
        index = _integer(node.slice)
        if tensor is not None and index is not None:
            tensor.min_rank = max(tensor.min_rank, index + 1 if index >= 0 else -index)
        return
    if isinstance(node.value, ast.Dict) and (key := of(node.slice)) is not None:
        key.uses.add("compared")
        key.literals += [k.value for k in node.value.keys if isinstance(k, ast.Constant)]
    _visit_index(node.slice, of)
    if (facts := of(node.value)) is not None:
        _visit_items(node.slice, facts)


def _visit_items(index: ast.expr, facts: Facts) -> None:
    """Record the facts that the indices of a parameter show of it."""
    if (number := _integer(index)) is not None:
        facts.uses.add("indexed")
        facts.indexed = max(facts.indexed, number + 1 if number >= 0 else -number)
    if isinstance(index, ast.Constant) and isinstance(index.value, str):
        facts.keys.add(index.value)
    if not isinstance(index, ast.Tuple):
        return
    if any(map(_is_backwards, index.elts)):
        facts.uses.add("reversed")
    items = [i for i in index.elts if not (isinstance(i, ast.Constant) and i.value in (None, Ellipsis))]
    facts.uses.add("tensor")
    if any(isinstance(i, ast.Constant) and i.value is Ellipsis for i in index.elts):
        facts.min_rank = max(facts.min_rank, len(items))
    else:
        facts.min_rank = max(facts.min_rank, len(items))
        if isinstance(index.elts[-1], ast.Slice) and index.elts[-1].lower is None:
            facts.likely_rank = facts.likely_rank or len(items)
            if index.elts[-1].upper is None and index.elts[-1].step is None:
                facts.sliced_rank = len(items)


def _is_backwards(index: ast.expr) -> bool:
    """Return True for a slice with a negative step."""
    step = _integer(index.step) if isinstance(index, ast.Slice) and index.step is not None else None
    return step is not None and step < 0


def _visit_index(index: ast.expr, of: Any) -> None:
    """Record indices and masks (`x[i]`, `x[:, ~mask]`), and numbers that bound a slice."""
    for part in index.elts if isinstance(index, ast.Tuple) else [index]:
        inverted = isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Invert)
        if (facts := of(part.operand if isinstance(part, ast.UnaryOp) and inverted else part)) is not None:
            facts.uses.add("index")
            facts.dtype = "b8" if inverted else facts.dtype
        for bound in (part.lower, part.upper, part.step) if isinstance(part, ast.Slice) else ():
            if bound is not None:
                _visit_count(bound, of)


def _visit_count(expression: ast.expr, of: Any) -> None:
    for part in ast.walk(expression):
        if isinstance(part, ast.Name) and (facts := of(part)) is not None and not _inside_call(expression, part):
            facts.uses.add("count")


def _visit_called(node: ast.Call, called: Facts | None) -> None:
    """Record a called parameter, with its number of arguments."""
    if called is not None:
        is_plain = not node.keywords and not any(isinstance(a, ast.Starred) for a in node.args)
        called.uses |= {"called"} if is_plain else {"called", "keywords"}
        called.arguments = len(node.args)
        called.keywords |= {keyword.arg for keyword in node.keywords if keyword.arg is not None}


def visit_call(node: ast.Call, of: Any) -> None:
    """Record the facts that a call shows of the called object and of its arguments."""
    _visit_called(node, of(node.func))
    _visit_handed(node, of)
    name = _called_name(node)
    _visit_layers(node, of)
    _visit_images(node, name, of)
    subject = of(_before_views(node.func.value, _CASTS)) if isinstance(node.func, ast.Attribute) else None
    for argument in _counts(node, name):
        _visit_count(argument, of)
    visit_pattern(node, of)
    if subject is not None:
        _visit_axes(node, name, subject)
        if name in _OF_TEXTS and not node.keywords and all(type(getattr(a, "value", None)) is str for a in node.args):
            subject.uses.add("text")
    else:
        _visit_operands(node, name, of)
    _visit_positions(node, name, of)


_OF_TEXTS = frozenset(name for name in dir(str) if name[0] != "_") - frozenset(dir(list))
"""Methods that texts have: with no arguments, or with literal texts, no tensor takes them."""


def _visit_axes(node: ast.Call, name: str, subject: Facts) -> None:
    """Record the axes in a call of a tensor's method: `x.permute(0, 2, 1)`, `x.transpose(1, 2)`."""
    axes = [axis for axis in map(_integer, node.args) if axis is not None]
    if name in ("view", "reshape") and axes[0:1] == [-1] and len(axes) > 1 and {*axes[1:]} == {1}:
        subject.likely_rank = subject.likely_rank or 1  # one number for each example
    if name == "permute" and len(axes) == len(node.args) > 1:
        subject.rank = len(axes)
        return
    named = (axis for axis in map(_integer, node.args[_AXES.get(name, slice(0))]) if axis is not None)
    subject.min_rank = max([subject.min_rank, *(axis + 1 if axis >= 0 else -axis for axis in named)])


def _visit_operands(node: ast.Call, name: str, of: Any) -> None:
    """Record the ranks of the operands of a torch function: `F.conv2d(x, weight)`, `torch.bmm(a, b)`."""
    convolution = re.fullmatch(r"conv(_transpose)?([123])d", name)
    ranks: dict[int | str, int] = dict(_OPERAND_RANKS.get(name, {}))
    if convolution is not None:
        spatial = int(convolution[2])
        ranks = {0: spatial + 2, 1: spatial + 2, **ranks}
        kernel = of(node.args[1]) if len(node.args) > 1 else None
        if kernel is not None:
            kernel.sizes.update({-1 - index: 3 for index in range(spatial)})
    named = {keyword.arg: keyword.value for keyword in node.keywords}
    for place, rank in ranks.items():
        argument = named.get(place) if isinstance(place, str) else next(iter(node.args[place : place + 1]), None)
        if argument is not None and (operand := of(argument)) is not None:
            operand.rank = rank


def _visit_positions(node: ast.Call, name: str, of: Any) -> None:
    """Record indices and masks: `x.gather(1, index)`, `torch.gather(x, 1, index)`."""
    is_method = isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) not in _MODULES
    name = name.removesuffix("_")
    for position in _LENGTHS.get(name, ()):
        if position < len(node.args) and (lengths := of(_before_views(node.args[position]))) is not None:
            lengths.dtype, lengths.rank = "i64", 1
    for argument, dtype in _positions(node, name, is_method):
        if (facts := of(_before_views(argument))) is not None:
            facts.dtype = dtype
            if of(argument) is None:  # a flattened tensor had more dimensions, and an unsqueezed one had fewer
                facts.likely_rank = facts.likely_rank or (1 if _is_unsqueezed(argument) else 2)
            elif name.startswith("index_"):
                facts.rank = 1


def _is_unsqueezed(expression: ast.expr) -> bool:
    return isinstance(expression, ast.Call) and _called_name(expression) == "unsqueeze"


def _positions(node: ast.Call, name: str, is_method: bool) -> Iterator[tuple[ast.expr, str]]:
    """Yield the arguments of a call that are indices, labels or masks, each with its dtype."""
    position, dtype = _LABELING.get(name, (0, "")) if not is_method else (0, "b8" if name == "where" else "")
    if name in _INDEXING:
        position, dtype = _INDEXING[name][0] + (not is_method), _INDEXING[name][1]
    named = [k.value for k in node.keywords if dtype and k.arg == ("index" if dtype == "i64" else "mask")]
    yield from ((argument, dtype) for argument in [*node.args[position : position + bool(dtype)], *named])


def visit_views(function: FunctionNode, facts: Mapping[str, Facts]) -> None:
    """Record indices and labels that are viewed first: `y = y.view(-1)`, then `F.cross_entropy(x, y)`."""
    names = _viewed_once(function) & facts.keys()
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call)) if names else ()
    for argument, dtype in (position for call in calls for position in _positions(call, _called_name(call), False)):
        if isinstance(argument, ast.Name) and argument.id in names:
            held = facts[argument.id]
            held.dtype, held.likely_rank = held.dtype or dtype, held.likely_rank or 2


def _viewed_once(function: FunctionNode) -> set[str]:
    """Return the variables that a function assigns once, to a view of themselves."""
    nodes = list(ast.walk(function))
    stored = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    assignments = (
        node for node in nodes if isinstance(node, ast.Assign) and stored.count(_named(node.targets[0])) == 1
    )
    return {
        _named(node.targets[0]) for node in assignments if _named(_before_views(node.value)) == _named(node.targets[0])
    }


def _named(expression: ast.expr) -> str:
    """Return the name of a name expression, or ""."""
    return expression.id if isinstance(expression, ast.Name) else ""


def _called_name(node: ast.Call) -> str:
    """Return the last name of the called function: `view` for `x.view(-1)`."""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def _before_views(expression: ast.expr, methods: Set[str] | None = None) -> ast.expr:
    """Return the tensor before its views, of the same dtype: `targets` for `targets.view(-1)` or `targets[:,
    1:].reshape(-1)`; with `methods`, before calls of those alone.
    """
    while True:
        if isinstance(expression, ast.Subscript) and methods is None:
            expression = expression.value
        elif (
            isinstance(expression, ast.Call)
            and isinstance(expression.func, ast.Attribute)
            and expression.func.attr in (_VIEWS if methods is None else methods)
        ):
            expression = expression.func.value
        else:
            return expression


_CASTS = frozenset({"to", "float", "double", "half", "type", "type_as", "cuda", "cpu", "contiguous", "clone", "detach"})
"""Methods that return the same numbers in the same shape."""


def gone_over(node: ast.For | ast.comprehension) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the iterables of a loop with the variables that it binds, also in `enumerate`, `zip` and `reversed`, and in
    what shows the progress of a loop.
    """
    called = node.iter.func.id if isinstance(node.iter, ast.Call) and isinstance(node.iter.func, ast.Name) else ""
    whole, targets = [node.iter], [node.target]
    if isinstance(node.iter, ast.Call) and called in ("enumerate", "zip") and isinstance(node.target, ast.Tuple):
        whole, targets = node.iter.args, node.target.elts[1 if called == "enumerate" else 0 :]
    elif isinstance(node.iter, ast.Call) and called == "reversed":
        whole = node.iter.args
    yield from zip(map(_shown, whole), targets, strict=False)


def _shown(iterable: ast.expr) -> ast.expr:
    """Return the iterable of a loop without the function that shows its progress: `data` for `tqdm(data)`."""
    if isinstance(iterable, ast.Call) and iterable.args and _called_name(iterable) in _PROGRESS:
        return iterable.args[0]
    return iterable


_PROGRESS = frozenset({"tqdm", "track", "alive_it", "progress_bar"})
"""Functions of tqdm, Rich, alive-progress and fastprogress (their documentation) that return the items of their first
argument.
"""


def visit_loop(node: ast.AST, of: Any) -> None:
    """Record modules that a loop calls one after the other: `for layer in layers: x = layer(x)`."""
    loops: list[tuple[ast.For | ast.comprehension, Sequence[ast.AST]]] = []
    if isinstance(node, ast.For):
        loops.append((node, node.body))
    elif isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        loops += [(part, [node.elt]) for part in node.generators]
    for loop, body in loops:
        for over, target in gone_over(loop):
            if (facts := of(over)) is not None and isinstance(target, ast.Name):
                _visit_called_in_turn(target.id, body, facts)


def _visit_called_in_turn(name: str, body: Sequence[ast.AST], facts: Facts) -> None:
    """Record calls of a variable that iterates over modules as calls of one of them."""
    for node in (node for part in body for node in ast.walk(part)):
        match node:
            case ast.Call(ast.Name(called)) if called == name:
                facts.uses.add("modules")
                _visit_called(node, facts.each())
            case ast.Assign([ast.Tuple(elements)], ast.Call(ast.Name(called))) if called == name:
                facts.each().results = len(elements)
            case _:
                pass


def _visit_layers(node: ast.Call, of: Any) -> None:
    """Record containers of modules: `nn.ModuleList(layers)`, `nn.Sequential(*layers)`, `layers[0](x)`."""
    holders = held_by(node)
    if isinstance(node.func, ast.Subscript):
        holders = [node.func.value]
    for argument in holders:
        if (facts := of(argument)) is not None:
            facts.uses.add("modules")


def held_by(call: ast.Call) -> list[ast.expr]:
    """Return the argument of a container of modules: `layers` for `nn.ModuleList(layers)`, `nn.Sequential(*layers)`."""
    name = _called_name(call)
    if name == "Sequential":
        return [argument.value for argument in call.args if isinstance(argument, ast.Starred)]
    return call.args if name == "ModuleList" else []


def _visit_handed(node: ast.Call, of: Any) -> None:
    """Record which arguments of a function are unchanged parameters, and which are spread as its keywords."""
    positional = node.args if not any(isinstance(a, ast.Starred) for a in node.args) else []
    arguments = [*enumerate(positional), *((k.arg, k.value) for k in node.keywords if k.arg is not None)]
    for place, argument in arguments:
        if (facts := of(argument)) is not None:
            facts.handed.append((ast.unparse(node.func), place))
    for spread in (argument.value for argument in node.args if isinstance(argument, ast.Starred)):
        if (several := of(spread)) is not None:
            several.uses.add("iterated")
    for spread in (keyword.value for keyword in node.keywords if keyword.arg is None):
        if (options := of(spread)) is not None:
            options.uses.add("keywords")


def _inside_call(expression: ast.expr, name: ast.Name) -> bool:
    """Return True if a name is in a call, an attribute or a subscript below `expression`, where it does not count."""
    nodes = [n for n in ast.walk(expression) if isinstance(n, (ast.Call, ast.Attribute, ast.Subscript))]
    return any(name in ast.walk(node) for node in nodes)


def _integer(node: ast.expr) -> int | None:
    try:
        number = ast.literal_eval(node)
    except ValueError:
        return None
    return number if type(number) is int else None


_OPERAND_RANKS: dict[str, dict[int | str, int]] = {
    "cross_entropy": {2: 1, "weight": 1},
    "nll_loss": {2: 1, "weight": 1},
    "linear": {1: 2, 2: 1},
    "layer_norm": {2: 1, 3: 1},
    "rms_norm": {2: 1},
    "group_norm": {2: 1, 3: 1},
    "batch_norm": {1: 1, 2: 1, 3: 1, 4: 1},
    "embedding": {1: 2},
    "bmm": {0: 3, 1: 3},
    "mm": {0: 2, 1: 2},
    "addmm": {1: 2, 2: 2},
    "scaled_dot_product_attention": {0: 4, 1: 4, 2: 4},
    "flex_attention": {0: 4, 1: 4, 2: 4},
    "ctc_loss": {0: 3, 1: 2},
    "pack_padded_sequence": {0: 3},
    "sparse_coo_tensor": {0: 2, 1: 1},
    "conv1d": {2: 1},
    "conv2d": {2: 1},
    "conv3d": {2: 1},
}
"""The rank of an operand of a torch function, by its position or its name."""
_OF_IMAGES = frozenset(
    {
        "interpolate",
        "upsample",
        "grid_sample",
        "pixel_shuffle",
        "pixel_unshuffle",
        "channel_shuffle",
        "local_response_norm",
    }
)


def _visit_images(node: ast.Call, name: str, of: Any) -> None:
    """Record calls that count spatial dimensions in their name, `F.max_pool2d`, or are for images."""
    spatial = re.fullmatch(r"[a-z_]*[a-z]([123])d", name)
    image = of(node.args[0]) if node.args else None
    if image is not None and (spatial or name in _OF_IMAGES):
        image.likely_rank = image.likely_rank or (int(spatial[1]) + 2 if spatial else 4)


_MODULES = frozenset({"torch", "F", "functional", "nn.functional", "torch.nn.functional"})
_INDEXING: dict[str, tuple[int, str]] = {
    **dict.fromkeys(("gather", "index_select", "index_add", "index_copy", "index_fill"), (1, "i64")),
    **dict.fromkeys(("scatter", "scatter_add", "scatter_reduce"), (1, "i64")),
    **dict.fromkeys(("take", "take_along_dim"), (0, "i64")),
    **dict.fromkeys(("masked_fill", "masked_select", "masked_scatter"), (0, "b8")),
}
"""The position of the index or mask among the arguments of a tensor's method, and its dtype."""
_LENGTHS: dict[str, tuple[int, ...]] = {"ctc_loss": (2, 3), "pack_padded_sequence": (1,)}
"""The positions of arguments that are lengths, one for each example."""
_VIEWS = frozenset(
    {
        "cpu",
        "to",
        "long",
        "int",
        "tolist",
        "view",
        "reshape",
        "flatten",
        "contiguous",
        "squeeze",
        "unsqueeze",
        "expand",
        "transpose",
        "permute",
    }
)
_LABELING: dict[str, tuple[int, str]] = {
    **dict.fromkeys(("embedding", "one_hot"), (0, "i64")),
    **dict.fromkeys(("cross_entropy", "nll_loss", "ctc_loss"), (1, "i64")),
    "where": (0, "b8"),
}
"""The position of the index among the arguments of functions, and its dtype."""


_AXES: dict[str, slice] = {
    **dict.fromkeys(
        ("transpose", "swapaxes", "size", "stride", "flatten", "squeeze", "unbind", "movedim"), slice(None)
    ),
    **dict.fromkeys(("sum", "mean", "prod", "std", "var", "amax", "amin", "argmax", "argmin", "max", "min"), slice(1)),
    **dict.fromkeys(("softmax", "log_softmax", "logsumexp", "cumsum", "cumprod", "select", "narrow"), slice(1)),
    **dict.fromkeys(("index_select", "gather", "scatter", "scatter_add", "index_add", "unflatten", "unfold"), slice(1)),
    **dict.fromkeys(("chunk", "split", "tensor_split"), slice(1, 2)),
}
"""The positions of a method's arguments that are axes of its tensor."""


def _counts(node: ast.Call, name: str) -> list[ast.expr]:
    """Return the arguments that a call uses as counts."""
    if name in _COUNT_ALONE:
        return node.args
    if name not in _COUNT_ON_A_TENSOR:
        return []
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    function = owner is None or (isinstance(owner, ast.Name) and owner.id == "torch")
    return node.args[1 if function else 0 :]


_COUNT_ALONE = frozenset(
    {"range", "arange", "zeros", "ones", "empty", "rand", "randn", "eye", "int", "linspace", "slice"}
)
_COUNT_ON_A_TENSOR = frozenset(
    {"view", "reshape", "expand", "repeat", "tile", "unflatten", "new_zeros", "new_ones", "new_empty", "topk", "chunk"}
    | {"split", "tensor_split", "unfold", "repeat_interleave", "roll", "narrow"}
)
"""Functions and methods whose arguments after the tensor are counts."""
