"""Find the targets in a file: functions, methods and `nn.Module` classes. Reads syntax only, runs nothing."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from fx_lsp.model import Failure, Span, Target, TargetKind
from fx_lsp.specs import FX_COMMENT
from fx_lsp.tracing.source.arrays import strangers
from fx_lsp.tracing.source.calculations import handed_tensors
from fx_lsp.tracing.source.drivers import SCRIPT, driver_of, top_level_code
from fx_lsp.tracing.source.graph_builders import find_builders
from fx_lsp.tracing.source.index import ModuleIndex
from fx_lsp.tracing.source.outline import Function, Outline, outline_of, target_classes
from fx_lsp.tracing.source.parsing import end_of, parse, split_lines, start_of, walk
from fx_lsp.tracing.source.tensor_code import Look, is_number, look_at, receives_parameter
from fx_lsp.tracing.source.torch_values import TorchValues
from fx_lsp.training.step import Step, steps_of

MAX_SUGGESTIONS = 8
"""The most names that are suggested in place of an unknown target."""
_WORD = re.compile(rb"[\w\x80-\xff]+")
_COLLATE = re.compile(r"(^|[._])collate(_|\d|$)[^.]*$|Collat(e|or|ion)\w*\.__call__$")


@dataclass(frozen=True)
class Discovery:
    """Hold the targets of a file in source order; `failure` (kind "syntax") explains why there are none.

    `steps` are those of kind "step" by their names.
    """

    targets: tuple[Target, ...]
    failure: Failure | None
    steps: Mapping[str, Step] = field(default_factory=dict[str, Step])


def discover(file: str, text: str, index: ModuleIndex | None = None, asked: Collection[str] = frozenset()) -> Discovery:
    """Return the targets in `text`. Pass its `index` if it is parsed already.

    `asked` names functions that are targets by request. A wrong guess runs somebody's script, so other functions that
    look like programs are left out.
    """
    if index is None:
        parsed = parse(file, text)
        if isinstance(parsed, Failure):
            return Discovery((), parsed)
        index = ModuleIndex(parsed)
    tree = index.tree
    outline = outline_of(index)
    lines = split_lines(text)
    wanted = _asked_for(outline, lines) | {*asked}
    values = _torch_values(outline, tree)
    looks = _looks(outline, values)
    programs = _programs(outline, tree, looks)
    builders = find_builders(outline, tree, text)
    builders = {name: node for name, node in builders.items() if name in wanted or name not in programs}
    accepted = _accept(outline, tree, looks, programs) | ((outline.functions.keys() & wanted) - outline.excluded)
    evident = _evident(outline, looks, accepted) | wanted
    places = _FileLines(file, lines)
    targets = [places.target(name, node, "graph") for name, node in builders.items()]
    targets += _targets(places, outline, accepted - builders.keys(), wanted, evident)
    by_name = {target.name: target for target in targets}
    steps = {s.name: s for s in (steps_of(tree) if outline.uses_torch else ()) if s.is_hook or s.name not in by_name}
    targets = [target for target in targets if target.name not in steps]
    targets += [_step_target(places, step) for step in steps.values()]
    targets += _script_targets(file, index, values) if outline.uses_torch else ()
    return Discovery(tuple(sorted(targets, key=_start)), None, steps)


def names_like(name: str, names: Sequence[str]) -> str:
    """Return a sentence that suggests names of targets in place of an unknown one: the closest first."""
    inside = [other for other in names if other.startswith(f"{name}.") or name.startswith(f"{other}.")]
    close = [*inside, *get_close_matches(name, names, MAX_SUGGESTIONS, 0.5)]
    ordered = list(dict.fromkeys([*close, *names]))
    if not ordered:
        return "The file has no function or module that can be traced."
    more = f" and {len(ordered) - MAX_SUGGESTIONS} more" if len(ordered) > MAX_SUGGESTIONS else ""
    listed = ", ".join(f"`{other}`" for other in ordered[:MAX_SUGGESTIONS])
    return f"Did you mean `{close[0]}`? The file has {listed}{more}." if close else f"The file has {listed}{more}."


def stages_like(name: str, names: Sequence[str]) -> str:
    """Return a text that suggests names of stages in place of an unknown one: the closest, then all, in lines."""
    close = get_close_matches(name, names, 3, 0.5)
    first = f"Did you mean {' or '.join(f'`{other}`' for other in close)}? " if close else ""
    lines = textwrap.wrap(", ".join(names) or "none", 100, break_long_words=False, break_on_hyphens=False)
    return "\n  ".join([f"{first}It has:", *lines])


def _targets(
    places: _FileLines,
    outline: Outline,
    accepted: Collection[str],
    wanted: Collection[str],
    evident: Collection[str],
) -> Iterator[Target]:
    for name in accepted:
        function = outline.functions[name]
        yield places.target(name, function.node, _kind(function), name in evident)
    for name in target_classes(outline):
        yield places.target(name, outline.classes[name].node, "module")
    for name in outline.autograd:
        yield places.target(name, outline.classes[name].node, "function")
    for name, partial in outline.partials.items():
        of = outline.functions.get(partial.of)
        redefined = name in outline.functions or name in outline.classes
        if of is not None and not redefined and partial.left(of.params) and (partial.of in accepted or name in wanted):
            yield places.target(name, partial.node, "function", partial.of in evident or name in wanted)


def _asked_for(outline: Outline, lines: list[str]) -> set[str]:
    """Return the functions with a `# fx:` comment, whose author wants them traced."""
    marked = [number for number, line in enumerate(lines, 1) if FX_COMMENT.search(line)]
    asked: set[str] = set()
    places = {name: (function.node, function.node.body[0].lineno) for name, function in outline.functions.items()}
    places |= {name: (partial.node, partial.node.lineno) for name, partial in outline.partials.items()}
    for name, (node, last) in places.items() if marked else ():
        first = start_of(node)[0]
        while first > 1 and lines[first - 2].lstrip().startswith("#"):
            first -= 1
        if any(first <= number <= last for number in marked):
            asked.add(name)
    return asked


def _torch_values(outline: Outline, tree: ast.Module) -> TorchValues:
    functions = {name: function.node for name, function in outline.functions.items() if "." not in name}
    return TorchValues(outline.imports, outline.members_of_modules(), functions).inside(tree.body)


def _looks(outline: Outline, values: TorchValues) -> dict[str, Look]:
    uses_torch = outline.uses_torch
    looks: dict[str, Look] = {}
    for name, function in outline.functions.items():
        others = strangers(function.node, function.params, outline.imports)
        layers = outline.layers_of(function)
        looks[name] = look_at(function.node, function.params, outline.imports, layers, others)
        if uses_torch and not looks[name].tensors:
            names = {p.arg for p in function.params if not is_number(p.annotation)} - others.certain - others.doubtful
            around = _values_around(function, outline, values)
            looks[name] = replace(looks[name], tensors=around.applied_in(function.node, names))
        required = {p.arg for p in function.params[: len(function.params) - len(function.node.args.defaults)]}
        foreign = bool(required) and required <= others.certain
        looks[name] = replace(looks[name], program=looks[name].program or bool(others.images), foreign=foreign)
    return looks


def _values_around(function: Function, outline: Outline, values: TorchValues) -> TorchValues:
    """Return the values from torch that a function can refer to, including those of the functions around it."""
    outer = {**outline.forwards(), **outline.functions}.get(function.outer or "")
    if outer is None:
        return values
    names = {node.arg for node in walk(outer.node.args) if isinstance(node, ast.arg)}
    return _values_around(outer, outline, values).inside(outer.node.body, names)


def _accept(outline: Outline, tree: ast.Module, looks: Mapping[str, Look], programs: Collection[str]) -> set[str]:
    excluded = {*programs, *outline.excluded, *(name for name, look in looks.items() if look.foreign)}
    candidates = [name for name in looks if name not in excluded]
    accepted = {name for name in candidates if looks[name].tensors}
    accepted |= handed_tensors(outline, tree, [name for name in candidates if name not in accepted])
    modules = target_classes(outline)

    def hands_on(name: str, reached: set[str]) -> bool:
        function = outline.functions[name]
        calls_itself = not reached.isdisjoint(_self_callees(name, outline, looks))
        return calls_itself or receives_parameter(function.node, function.params, reached | modules)

    return _with_callers(accepted, candidates, outline, looks, hands_on)


def _with_callers(
    start: set[str],
    names: Iterable[str],
    outline: Outline,
    looks: Mapping[str, Look],
    joins: Callable[[str, set[str]], bool] = lambda name, reached: True,
) -> set[str]:
    """Return `start` with those of `names` that call a reached function and satisfy `joins`."""
    callers: dict[str, list[str]] = {}
    for name in names:
        for callee in _callees(name, outline, looks):
            callers.setdefault(callee, []).append(name)
    reached, waiting = set(start), [*start]
    while waiting:
        for caller in callers.get(waiting.pop(), ()):
            if caller not in reached and joins(caller, reached):
                reached.add(caller)
                waiting.append(caller)
    return reached


def _evident(outline: Outline, looks: Mapping[str, Look], accepted: Collection[str]) -> set[str]:
    """Return the accepted functions that evidently handle tensors, or call one that does."""
    evident = {name for name in accepted if looks[name].evident}
    return _with_callers(evident, accepted, outline, looks)


def _programs(outline: Outline, tree: ast.Module, looks: Mapping[str, Look]) -> set[str]:
    """Return the functions that look like programs, take images or make batches, are inside of such, or call one."""
    programs = {name for name, look in looks.items() if look.program} | _collating(outline, tree)
    for name, function in outline.functions.items():
        if function.outer in programs:
            programs.add(name)
    return _with_callers(programs, looks, outline, looks)


def _collating(outline: Outline, tree: ast.Module) -> set[str]:
    """Return the functions that collate samples for a `DataLoader`: by name, or passed to one."""
    passed = {
        keyword.value.id
        for node in walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "collate_fn" and isinstance(keyword.value, ast.Name)
    }
    named = {name for name in outline.functions if _COLLATE.search(name)}
    return named | (passed & outline.functions.keys())


def _callees(name: str, outline: Outline, looks: Mapping[str, Look]) -> set[str]:
    return set(looks[name].calls) | _self_callees(name, outline, looks)


def _self_callees(name: str, outline: Outline, looks: Mapping[str, Look]) -> set[str]:
    owner = outline.functions[name].owner
    return {f"{owner}.{method}" for method in looks[name].self_calls} if owner else set()


def _kind(function: Function) -> TargetKind:
    return "method" if function.owner else "function"


def _start(target: Target) -> tuple[int, int]:
    return target.span.line, target.span.col


@dataclass(frozen=True)
class _FileLines:
    """Hold the lines of a file, in which targets have their places."""

    file: str
    lines: list[str]

    def target(self, name: str, node: ast.stmt, kind: TargetKind, evident: bool = True) -> Target:
        """Return the target that a statement defines."""
        place = _name_span(self.file, self.lines, name.rpartition(".")[2].encode(), node)
        return Target(self.file, name, kind, place, Span(self.file, *start_of(node), *end_of(node)), evident)


def _step_target(places: _FileLines, step: Step) -> Target:
    region, file = step.region, places.file
    if isinstance(region, ast.FunctionDef):
        return places.target(step.name, region, "step")
    line, col = start_of(region)
    keyword = Span(file, line, col, line, col + len("for" if isinstance(region, ast.For) else "while"))
    return Target(file, step.name, "step", keyword, Span(file, line, col, *end_of(region)))


def _script_targets(file: str, index: ModuleIndex, values: TorchValues) -> Iterator[Target]:
    """Yield the target of a file that runs as a program, or whose top level computes with values from torch."""
    driver = driver_of(index)
    code = [*top_level_code(index, values), *([] if driver is None else [driver])]
    if code:
        (line, col), end = min(map(start_of, code)), max(map(end_of, code))
        yield Target(file, SCRIPT, "script", Span(file, line, col, line, col + 1), Span(file, line, col, *end))


def _name_span(file: str, lines: list[str], name: bytes, node: ast.stmt) -> Span:
    """Return the span of the identifier after `def` or `class`, which may be on a continuation line, or of the assigned
    name.
    """
    col = node.col_offset
    for line in range(node.lineno, min(node.lineno + 3, len(lines) + 1)):
        for word in _WORD.finditer(lines[line - 1].encode("utf-8", "surrogatepass"), col):
            if word[0] == name:
                return Span(file, line, word.start(), line, word.end())
        col = 0
    return Span(file, node.lineno, node.col_offset, node.lineno, node.col_offset + 3)
