"""Which definitions of a file use a target, so that a tracer may look at what they call it with. Reads syntax only."""

from __future__ import annotations

from collections.abc import Mapping

from fx_lsp.model import Caller, Target
from fx_lsp.tracing.slicing import SourceGraph

CALLERS = 3
"""How many callers a request names at most."""


def callers_of(name: str, targets: Mapping[str, Target], graph: SourceGraph) -> tuple[Caller, ...]:
    """The callers of the target `name`, the most telling first: what `get_inputs()` is meant for, then the shortest."""
    around = _around(name, targets)
    users = [around] if around else []
    top = name.partition(".")[0]
    users += [user for user in graph.users(top) if user in targets and user != top]
    root = conventional(targets, graph)
    if root is not None and root != name and top in graph.reached(root):
        users.insert(0, root)
    slices = {user: graph.slice(user) for user in dict.fromkeys(users)}
    chosen = sorted(slices, key=lambda user: (user not in (root, around), len(slices[user].lines)))[:CALLERS]
    return tuple(Caller(user, targets[user].kind, slices[user].text, user == root) for user in chosen)


def conventional(targets: Mapping[str, Target], graph: SourceGraph) -> str | None:
    """The module that the file's `get_inputs()` is meant for: the last one that nothing else in the file uses."""
    if not graph.binds("get_inputs"):
        return None
    modules = [name for name, target in targets.items() if target.kind == "module"]
    unused = [name for name in modules if not any(user != name for user in graph.users(name))]
    return unused[-1] if unused else None


def _around(name: str, targets: Mapping[str, Target]) -> str | None:
    """The function that a nested function is in, or the class of a method, where that is a target."""
    outer = name.rpartition(".")[0]
    if not outer:
        return None
    if outer.endswith(".forward") and outer not in targets:
        outer = outer.removesuffix(".forward")
    return outer if outer in targets else None
