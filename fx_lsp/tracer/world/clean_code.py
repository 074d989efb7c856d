"""Give the functions of a file the code of its plain text, in place of the code that they were run with."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import CodeType, FunctionType


def restore_code(file: str, text: str) -> None:
    """Have the functions of `file` that exist in this process run as `text` has them, line by line as it stands there.

    A program that is run whole has code around its statements; a graph is traced without.
    """
    plain = {(code.co_firstlineno, code.co_name): code for code in _codes_in(compile(text, file, "exec"))}
    for function in [item for item in gc.get_objects() if type(item) is FunctionType]:
        code = function.__code__
        if code.co_filename != file or code.co_name.startswith("<"):
            continue
        wanted = plain.get((code.co_firstlineno, code.co_name))
        if wanted is not None and wanted.co_freevars == code.co_freevars:
            function.__code__ = wanted


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes_in(constant)
