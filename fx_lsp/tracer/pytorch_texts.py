"""Match texts of PyTorch and of TorchScript that have no form as data: messages, guards, places.

Each pattern has an example. A version of PyTorch that words one differently needs a change here, and nowhere else.
"""

from __future__ import annotations

import re

OF_SHAPES = re.compile(
    r"shapes? cannot be multiplied|must match|reduction dim|size mismatch|sizes? of tensors|invalid for input of size|"
    r"broadcast|expected (input|size)|expanded size|Dimension out of range|dimension|normalized_shape|shape|"
    r"\d+D|channels|unpack|size of tensor|equal size|index .* out of bounds|split",
    re.IGNORECASE,
)
"""`mat1 and mat2 shapes cannot be multiplied (4x8 and 16x8)`: an error of sizes or ranks."""
OF_DTYPES = re.compile(
    r"dtype|scalar type|data type|must be long|(Float|Long|Half|Int|Bool|Double|BFloat16)Tensor|not implemented for '|"
    r"bool tensor|floating point or complex"
)
"""`expected scalar type Long but found Float`: an error of dtypes."""
OF_DTYPES_OF_A_KERNEL = re.compile(
    r"not implemented for '(Bool|Byte|Char|Short|Int|Long|Float|Double)'|dtype|scalar type|bool tensor|boolean mask"
)
"""`"softmax" not implemented for 'Long'`: an error of a real kernel."""
OF_DEVICES = re.compile(r"found (at least )?two (different )?devices,? (\S+?),? (?:and )?(\S+?)(!|$)")
"""`Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!`"""
OF_MISSING_VALUES = (
    ".numpy() is not supported for tensor subclasses",
    "The tensor has a non-zero number of elements, but its data is not allocated yet",
)
"""The beginnings of messages for code in C++ that reads the values of a fake tensor."""
OPERATION = re.compile(r"aten\.\w+(\.\w+)?")
"""`aten._local_scalar_dense.default`: the operation that needs a value."""
LACKS_FAKE = re.compile(r"no fake impl registered for <CustomOpDef\(([\w.]+)::(\w+)\)>")
"""A custom operator without a fake kernel."""
PLAINER = (
    (OF_DEVICES.pattern, r"operands are on different devices, \3 and \4"),
    (
        r"must have same reduction dim, but got \[(\d+), (\d+)\] X \[(\d+), (\d+)\]",
        r"matrices of \1×\2 and \3×\4 cannot be multiplied: the inner sizes \2 and \3 differ",
    ),
    (
        r"mat1 and mat2 shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)",
        r"matrices of \1×\2 and \3×\4 cannot be multiplied: the inner sizes \2 and \3 differ",
    ),
    (
        r"broadcast a dimension of length (\d+) at (-?\d+)!.*had torch\.Size\((.*?)\).* broadcastable to (\[.*?\])",
        r"shapes \3 and \4 do not broadcast: size \1 at dimension \2 does not match",
    ),
    (
        r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton dimension (\d+)",
        r"sizes \1 and \2 at dimension \3 do not broadcast",
    ),
    (
        r"^expand\(\w+\{(\[.*?\])\}, size=(\[.*?\])\): the number of sizes provided.*",
        r"a tensor of shape \1 cannot be expanded to \2, which has fewer dimensions",
    ),
    (
        r"needed for gradient computation has been modified by an inplace operation: \[\S+ (\[.*?\])\], "
        r"which is output \d+ of (\w+?)(Backward\d*)?,",
        r"backward needs the result of `\2`, of shape \1, but it is modified in place afterwards",
    ),
)
"""Patterns of fake tensors' messages, and clearer sentences."""
TENSOR_GUARD = re.compile(r"tensor '(?P<source>.*?)' (?=\S+ mismatch|dispatch|strides|Tensor)")
"""`tensor 'x' size mismatch at index 0. expected 4, actual 8`: a guard of Dynamo on a tensor."""
TYPE_GUARD = re.compile(r"___check_type_id\((.*), \d+\), type=<class '(.*)'>")
"""`___check_type_id(L['n'], 7627424), type=<class 'int'>`: a guard of Dynamo on a type."""
GUARDED_VARIABLE = re.compile(r"\bL\['(\w+)'\]")
"""`L['x']`: a variable of the frame in a guard."""
PLACE_OF_GUARD = re.compile(r"# (\S+):(\d+) in ")
"""`# model.py:12 in forward`: the user's code that needs a guard."""
NODE_LINTED = re.compile(r"of Node '([^']+)'|Node '?([\w.]+)'? (?:target|had|does|is)\b|redefined name ([\w.]+)!")
"""`Node redefined name cat!`: the node that `Graph.lint` rejects."""
HERE_IN_TORCHSCRIPT = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<number>\d+)[^\n]*\n'
    r'(?:(?!\s*File ")[^\n]*\n)*?(?P<line>[^\n]*)\n[^\n]*~[^\n]*<--- HERE'
)
"""The place in an error of TorchScript."""
PLACE_IN_TORCHSCRIPT = re.compile(r" # <eval_with_key>[^\n]*")
ASSIGNED_IN_TORCHSCRIPT = re.compile(r"\s*(\w+)(?::[^=]*)?\s*=")
ENTRY_OF_STACK = re.compile(
    r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)[^\n]*\n(?P<rest>(?:(?!\s*File ")[^\n]*\n?)*)', re.M
)
"""An entry of a node's `stack_trace`."""
PART_OF_MODULE = re.compile(r"(?:\._modules)?\['([^']+)'\]|\._(?:parameters|buffers)\['([^']+)'\]")
"""`._modules['fc']._parameters['weight']`: the name of a parameter in a graph of Dynamo."""
