"""Tell edits of function bodies from other edits of a text."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from types import CodeType

from fx_lsp.syntax import FunctionNode, outermost_functions, parse
from fx_lsp.training.function import as_step

Place = tuple[int, str]
"""The line at which a function begins, its decorators included, and its name."""


@lru_cache(maxsize=32)
def changed_functions(old: str, new: str) -> frozenset[int] | None:
    """Return the lines in `old` at which the functions begin whose bodies differ in `new`; None where more differs.

    Functions in functions belong to the body of the outermost. Raises what `parse` raises.
    """
    if old == new:
        return frozenset()
    trees = parse(old), parse(new)
    functions, others = ([function for function, _ in outermost_functions(tree.body)] for tree in trees)
    before, after = ([_body_of(function) for function in each] for each in (functions, others))
    if ast.dump(trees[0]) != ast.dump(trees[1]):
        return None
    return frozenset(
        first_line(function) for function, was, now in zip(functions, before, after, strict=True) if was != now
    )


def outermost_names(text: str) -> Mapping[int, str]:
    """Return the qualified names of functions that are in no other, by the lines at which they begin."""
    return {first_line(function): name for function, name in outermost_functions(parse(text).body)}


def first_line(function: FunctionNode) -> int:
    """Return the line at which a function begins, its decorators included, as its code has it."""
    return min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])


def new_codes(file: str, old: str, new: str) -> Mapping[Place, CodeType]:
    """Return the code that functions of `old` have in `new`, of which only bodies of functions differ."""
    changed = changed_functions(old, new) or frozenset[int]()
    before, after = (compile(text, file, "exec", dont_inherit=True) for text in (old, new))
    pairs = [*_pairs(before, after, changed)]
    counts = Counter((was.co_firstlineno, was.co_name) for was, _ in pairs)
    codes = {(was.co_firstlineno, was.co_name): now for was, now in pairs}
    return {place: code for place, code in codes.items() if counts[place] == 1}


def code_of_step(file: str, text: str, line: int) -> CodeType | None:
    """Return the code of the function at a line of a text, which returns its losses in place of calling `backward`.

    None if no function begins there.
    """
    tree = ast.parse(text, file)
    function = as_step(tree, line)
    if function is None:
        return None
    place = first_line(function), function.name
    codes = [compile(tree, file, "exec", dont_inherit=True)]
    while codes:
        code = codes.pop()
        if (code.co_firstlineno, code.co_name) == place:
            return code
        codes += (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return None


def _body_of(function: FunctionNode) -> str:
    """Return the body of a function as text without positions, which is taken out of it."""
    body, function.body = function.body, []
    return ast.dump(ast.Module(body, []))


def _pairs(old: CodeType, new: CodeType, changed: Collection[int]) -> Iterator[tuple[CodeType, CodeType]]:
    """Yield the codes in two codes that belong together; what is in functions that have changed belongs to nothing."""
    inner = ([constant for constant in code.co_consts if isinstance(constant, CodeType)] for code in (old, new))
    for before, after in zip(*inner, strict=False):
        if before.co_name != after.co_name:
            return
        yield before, after
        if before.co_firstlineno not in changed:
            yield from _pairs(before, after, changed)
