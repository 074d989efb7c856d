"""Find parameters that are not tensors: arrays, images, text, by their uses. Reads syntax only."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping

from fx_lsp.syntax import FunctionNode
from fx_lsp.tracing.source.parsing import walk
from fx_lsp.tracing.source.tensor_code import (
    ARRAY_METHODS,
    Strangers,
    dotted,
    is_stdlib,
    is_tensor_method,
    is_text,
    mentions_tensor,
)

# fmt: off
ATTRIBUTES_OF_TENSORS = frozenset({
    "H", "T", "absolute", "acos", "acosh", "add", "addbmm", "addcdiv", "addcmul", "addmv", "addr", "adjoint",
    "allclose", "aminmax", "angle", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh",
    "argwhere", "as_strided", "as_strided_scatter", "as_subclass", "asin", "asinh", "atan", "atan2", "atanh",
    "backward", "bernoulli", "bincount", "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "bool", "broadcast_to", "byte", "ccol_indices", "cdouble", "cfloat", "chalf",
    "char", "cholesky", "cholesky_inverse", "cholesky_solve", "clamp_max", "clamp_min", "clip", "coalesce",
    "col_indices", "conj", "conj_physical", "const_data_ptr", "copysign", "corrcoef", "cosh", "count_nonzero", "cov",
    "cpu", "cross", "crow_indices", "cuda", "cummax", "cummin", "data", "data_ptr", "deg2rad", "dense_dim",
    "dequantize", "det", "device", "diag", "diag_embed", "diagflat", "diagonal_scatter", "diff", "digamma", "dim_order",
    "dist", "divide", "dot", "dsplit", "dtype", "eig", "element_size", "equal", "erfc", "erfinv", "exp2", "expm1",
    "fix", "fliplr", "flipud", "float_power", "floor_divide", "fmax", "fmin", "fmod", "frac", "frexp", "gcd", "geqrf",
    "ger", "get_device", "grad", "grad_dtype", "grad_fn", "greater", "greater_equal", "hardshrink", "hash_tensor",
    "heaviside", "histc", "histogram", "hsplit", "hypot", "i0", "igamma", "igammac", "imag", "index", "index_copy",
    "index_fill", "index_put", "index_reduce", "indices", "inner", "int", "int_repr", "inverse", "ipu", "is_coalesced",
    "is_complex", "is_conj", "is_contiguous", "is_cpu", "is_cuda", "is_distributed", "is_inference", "is_ipu",
    "is_leaf", "is_maia", "is_meta", "is_mkldnn", "is_mps", "is_mtia", "is_neg", "is_nested", "is_nonzero", "is_pinned",
    "is_quantized", "is_same_size", "is_set_to", "is_shared", "is_signed", "is_sparse", "is_sparse_csr", "is_vulkan",
    "is_xla", "is_xpu", "isclose", "isfinite", "isinf", "isneginf", "isposinf", "isreal", "istft", "item", "itemsize",
    "kron", "kthvalue", "layout", "lcm", "ldexp", "lerp", "less", "less_equal", "lgamma", "log10", "log2", "logaddexp",
    "logaddexp2", "logcumsumexp", "logdet", "logical_and", "logical_not", "logical_or", "logical_xor", "logit", "lstsq",
    "lu", "lu_solve", "mH", "mT", "masked_scatter", "matrix_exp", "matrix_power", "maximum", "median", "minimum", "mm",
    "mode", "module_load", "moveaxis", "msort", "mtia", "multinomial", "multiply", "mv", "mvlgamma", "name",
    "nan_to_num", "nanmean", "nanmedian", "nanquantile", "nansum", "narrow_copy", "nbytes", "ndim", "ndimension",
    "negative", "nelement", "new", "new_empty_strided", "nextafter", "nonzero_static", "not_equal", "numpy", "orgqr",
    "ormqr", "outer", "output_nr", "pin_memory", "pinverse", "polygamma", "positive", "prelu", "put",
    "q_per_channel_axis", "q_per_channel_scales", "q_per_channel_zero_points", "q_scale", "q_zero_point", "qr",
    "qscheme", "quantile", "rad2deg", "real", "reciprocal", "record_stream", "register_hook",
    "register_post_accumulate_grad_hook", "reinforce", "remainder", "renorm", "requires_grad", "reshape_as", "resize",
    "resize_as", "resolve_conj", "resolve_neg", "retain_grad", "retains_grad", "rot90", "row_indices", "scatter_reduce",
    "select_scatter", "sgn", "shape", "short", "signbit", "sinc", "sinh", "slice_inverse", "slice_scatter", "slogdet",
    "smm", "solve", "sort", "sparse_dim", "sparse_mask", "split", "split_with_sizes", "sspaddmm", "stft", "storage",
    "storage_offset", "storage_type", "stride", "sub", "subtract", "sum_to_size", "svd", "swapdims", "symeig", "take",
    "take_along_dim", "tan", "tensor_split", "to", "to_dense", "to_mkldnn", "to_padded_tensor", "to_sparse",
    "to_sparse_bsc", "to_sparse_bsr", "to_sparse_coo", "to_sparse_csc", "to_sparse_csr", "tolist", "trace",
    "triangular_solve", "true_divide", "trunc", "type", "unique", "unique_consecutive", "unsafe_chunk", "unsafe_split",
    "unsafe_split_with_sizes", "untyped_storage", "values", "vdot", "volatile", "vsplit", "xlogy", "xpu",
})
# fmt: on
"""Attributes of tensors, besides the methods that show one (`evidence.TENSOR_METHODS`)."""


def strangers(function: FunctionNode, params: Iterable[ast.arg], imports: Mapping[str, str]) -> Strangers:
    """Return the parameters that the text of `function` shows not to be tensors."""
    nodes = list(walk(*function.body))
    sources = _aliases(nodes, {p.arg for p in params})
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    certain, doubtful, tensors = _shown_by_calls(nodes, sources, imports)
    certain |= {p.arg for p in params if is_text(p.annotation) or _names_arrays(p.annotation, imports)}
    tensors |= {p.arg for p in params if mentions_tensor(p.annotation)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and _is_strange(node, called):
            doubtful |= _sources_of(_roots(node.value), sources)
        if _moves_axes_of_an_array(node):
            certain |= _sources_of(_roots(node), sources)
        if isinstance(node, ast.Assert):
            certain |= _sources_of([_asserted_text(node.test)], sources)
    images = _sources_of((name for node in nodes for name in _asked_for_two_sizes(node, called)), sources)
    return Strangers(frozenset(certain - tensors), frozenset(doubtful - tensors), frozenset(images - tensors))


def _shown_by_calls(
    nodes: Iterable[ast.AST], sources: Mapping[str, str], imports: Mapping[str, str]
) -> tuple[set[str], set[str], set[str]]:
    """Return the parameters that are certainly not, possibly not, and certainly tensors, by the calls that receive
    them.
    """
    certain, doubtful, tensors = set[str](), set[str](), set[str]()
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        handed = _sources_of((name for argument in _arguments(node) for name in _roots(argument)), sources)
        name = dotted(node.func, imports) or ""
        if _asks_what_it_is(node, name, imports):
            tensors |= handed
        elif name == "torch.from_numpy" or name.startswith("numpy."):
            certain |= handed
        elif isinstance(node.func, ast.Attribute) and _is_of_another_library(name, imports):
            doubtful |= handed
    return certain, doubtful, tensors


def _is_strange(node: ast.Attribute, called: Collection[int]) -> bool:
    """Return True for an attribute that tensors do not have. `size` is a method of tensors, which is `called`."""
    return (node.attr == "size" and id(node) not in called) or not _tensors_have(node.attr)


def _sources_of(names: Iterable[str], sources: Mapping[str, str]) -> set[str]:
    """Return the parameters that some names hold."""
    return {sources[name] for name in names if name in sources}


def _names_arrays(annotation: ast.expr | None, imports: Mapping[str, str]) -> bool:
    return annotation is not None and any(
        (dotted(node, imports) or "").startswith("numpy.") for node in walk(annotation)
    )


def _aliases(nodes: Iterable[ast.AST], names: Collection[str]) -> dict[str, str]:
    """Return the parameter that each name holds, or a part of: `image = batch["image"]`, `for box in boxes`."""
    sources = {name: name for name in names}
    for node in sorted((n for n in nodes if isinstance(n, (ast.Assign, ast.For))), key=lambda n: n.lineno):
        value = node.iter if isinstance(node, ast.For) else node.value
        targets = [node.target] if isinstance(node, ast.For) else node.targets
        held = {sources[name] for name in _parts(value) if name in sources}
        if len(held) == 1:
            for name in (n.id for n in walk(*targets) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)):
                sources.setdefault(name, *held)
    return sources


def _parts(node: ast.expr) -> Iterator[str]:
    """Yield the names that an expression evaluates to, or to a part of."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Tuple):
        for element in node.elts:
            yield from _parts(element)


def _roots(node: ast.AST) -> Iterator[str]:
    """Yield the names whose values an array expression is computed from; not those that it measures (`len(x)`,
    `x.shape`) or converts from PyTorch (`x.numpy()`).
    """
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, (ast.Subscript, ast.Starred)) or (isinstance(node, ast.Attribute) and node.attr == "T"):
        yield from _roots(node.value)
    elif isinstance(node, (ast.List, ast.Tuple)):
        for element in node.elts:
            yield from _roots(element)
    elif isinstance(node, ast.BinOp):
        yield from _roots(node.left)
        yield from _roots(node.right)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _gives_array(node.func.attr):
        yield from _roots(node.func.value)


def _gives_array(method: str) -> bool:
    return method in ARRAY_METHODS or not _tensors_have(method)


def _asserted_text(test: ast.expr) -> str:
    """Return the name in a check `isinstance(name, str)`, or ""."""
    if not isinstance(test, ast.Call) or dotted(test.func, {}) != "isinstance" or len(test.args) != 2:
        return ""
    return (dotted(test.args[0], {}) or "") if dotted(test.args[1], {}) in ("str", "bytes") else ""


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _asks_what_it_is(call: ast.Call, name: str, imports: Mapping[str, str]) -> bool:
    """Return True if a call shows that both tensors and arrays are accepted: `isinstance(x, np.ndarray)`."""
    if name == "torch.is_tensor":
        return True
    kinds = (
        {dotted(kind, imports) for kind in walk(call.args[1])} if name == "isinstance" and len(call.args) == 2 else ()
    )
    return bool({"torch.Tensor", "numpy.ndarray"} & {*kinds})


def _moves_axes_of_an_array(node: ast.AST) -> bool:
    """Return True for `x.transpose(2, 0, 1)` and `x.transpose((2, 0, 1))`; that of a tensor swaps two dimensions."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "transpose":
        return False
    return not node.keywords and bool(node.args) and len(node.args) != 2 and not isinstance(node.args[0], ast.Starred)


def _asked_for_two_sizes(node: ast.AST, called: Collection[int]) -> Iterator[str]:
    """Yield the names `x` in `w, h = x.size` and `x.size[0]`."""
    value = node.value if isinstance(node, (ast.Assign, ast.Subscript)) else None
    if isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Tuple):
        return
    if isinstance(value, ast.Attribute) and value.attr == "size" and id(value) not in called:
        yield from _parts(value.value)


def _is_of_another_library(name: str, imports: Mapping[str, str]) -> bool:
    """Return True if a dotted name is in an installed package whose name is unrelated to PyTorch."""
    package = name.partition(".")[0]
    imported = any(full.partition(".")[0] == package for full in imports.values())
    return imported and bool(package) and "torch" not in package and not is_stdlib(name)


def _tensors_have(attribute: str) -> bool:
    return attribute in ATTRIBUTES_OF_TENSORS or is_tensor_method(attribute)
