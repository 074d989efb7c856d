"""Find the definitions of a file that use a target, so that a tracer may observe their calls. Reads syntax only."""

from __future__ import annotations

from collections.abc import Mapping

from fx_lsp.model import Caller, Target, TargetKind
from fx_lsp.tracing.slicing.module_slice import SourceGraph

CALLERS = 3
"""The most callers in a request."""


def callers_of(name: str, targets: Mapping[str, Target], graph: SourceGraph) -> tuple[Caller, ...]:
    """Return the callers of the target `name`, the most informative first: the module of `get_inputs()`, then the
    shortest.
    """
    around = _around(name, targets, graph)
    top = name.partition(".")[0]
    users = [user for user in graph.index.users(top) if user in targets and user != top and user not in around]
    root = conventional(targets, graph)
    if root is not None and root != name and root not in around and top in graph.reached(root):
        users.insert(0, root)
    slices = {user: graph.slice(user) for user in [*around, *dict.fromkeys(users)]}
    others = sorted(dict.fromkeys(users), key=lambda user: (user != root, len(slices[user].lines)))
    first = [*([root] if root in others else []), *around]
    chosen = [*first, *(user for user in others if user != root)][:CALLERS]
    kinds: dict[str, TargetKind] = {**{user: target.kind for user, target in targets.items()}, **around}
    return tuple(Caller(user, kinds[user], slices[user].text, user == root) for user in chosen)


def conventional(targets: Mapping[str, Target], graph: SourceGraph) -> str | None:
    """Return the module that the file's `get_inputs()` is meant for: the last one that no other definition in the file
    uses.
    """
    if not graph.index.binds("get_inputs"):
        return None
    modules = [name for name, target in targets.items() if target.kind == "module"]
    unused = [name for name in modules if not any(user != name for user in graph.index.users(name))]
    return unused[-1] if unused else None


def _around(name: str, targets: Mapping[str, Target], graph: SourceGraph) -> dict[str, TargetKind]:
    """Return the definitions around a nested function (targets or not), from the outermost on, or the class of a
    method.

    Each is mapped to its kind; a class is included only if it is a target.
    """
    outer = name.rpartition(".")[0]
    if not outer:
        return {}
    if targets[name].kind != "function":
        return {outer: targets[outer].kind} if outer in targets else {}
    parts = outer.split(".")
    in_class = graph.index.is_class(parts[0])
    first = ".".join(parts[:2] if in_class else parts[:1])
    inner = (".".join(parts[:length]) for length in range(3 if in_class else 2, len(parts) + 1))
    functions: dict[str, TargetKind] = {function: "function" for function in inner}
    if parts[0] in targets and targets[parts[0]].kind == "module" and first == f"{parts[0]}.forward":
        return {parts[0]: "module", **functions}
    return {first: "method" if in_class else "function", **functions}
