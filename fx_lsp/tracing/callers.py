"""Which definitions of a file use a target, so that a tracer may look at what they call it with. Reads syntax only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fx_lsp.model import Caller, Target, TargetKind
from fx_lsp.tracing.slicing import SourceGraph

CALLERS = 3
"""How many callers a request names at most."""


def callers_of(name: str, targets: Mapping[str, Target], graph: SourceGraph) -> tuple[Caller, ...]:
    """The callers of the target `name`, the most telling first: what `get_inputs()` is meant for, then the shortest."""
    around = _around(name, targets)
    users = [around.name] if around else []
    top = name.partition(".")[0]
    users += [user for user in graph.users(top) if user in targets and user != top]
    root = conventional(targets, graph)
    if root is not None and root != name and top in graph.reached(root):
        users.insert(0, root)
    slices = {user: graph.slice(user) for user in dict.fromkeys(users)}
    first = {root, around.name if around else None}
    chosen = sorted(slices, key=lambda user: (user not in first, len(slices[user].lines)))[:CALLERS]
    kinds: dict[str, TargetKind] = {user: target.kind for user, target in targets.items()}
    if around:
        kinds[around.name] = around.kind
    return tuple(Caller(user, kinds[user], slices[user].text, user == root) for user in chosen)


@dataclass(frozen=True)
class _Around:
    name: str
    kind: TargetKind


def conventional(targets: Mapping[str, Target], graph: SourceGraph) -> str | None:
    """The module that the file's `get_inputs()` is meant for: the last one that nothing else in the file uses."""
    if not graph.binds("get_inputs"):
        return None
    modules = [name for name, target in targets.items() if target.kind == "module"]
    unused = [name for name in modules if not any(user != name for user in graph.users(name))]
    return unused[-1] if unused else None


def _around(name: str, targets: Mapping[str, Target]) -> _Around | None:
    """What a nested function is in (a target or not), or the class of a method, where that is a target."""
    outer = name.rpartition(".")[0]
    if not outer:
        return None
    if targets[name].kind == "function":  # a nested one
        owner = outer.rpartition(".")[0]
        if owner in targets and targets[owner].kind == "module" and outer == f"{owner}.forward":
            return _Around(owner, "module")
        return _Around(outer, "method" if owner else "function")
    return _Around(outer, targets[outer].kind) if outer in targets else None
