"""Collect the names that a target reads of each of its parameters, also where it passes them on. Reads syntax only."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fx_lsp.configurations import Reads
from fx_lsp.syntax import FUNCTIONS, FunctionNode
from fx_lsp.tracing.calls.project_files import ProjectFile, read_file
from fx_lsp.tracing.source.parsing import walk
from fx_lsp.tracing.source.tensor_code import mentions_tensor

MAX_DEPTH = 6
"""The most calls through which a configuration is followed."""
_OF_TENSORS = frozenset({"shape", "ndim", "requires_grad", "is_cuda", "in_features", "out_features"})
"""Attributes that are read of tensors and layers, and not of configurations."""
_DICT_METHODS = frozenset({"get", "pop", "setdefault"})


@dataclass(frozen=True)
class Definition:
    """Hold a function or class with its file."""

    file: ProjectFile
    node: FunctionNode | ast.ClassDef


def parameter_reads(
    name: str, file: ProjectFile, roots: Sequence[str], overlays: Mapping[str, str]
) -> dict[str, Reads]:
    """Return the names read of the parameters of the target `name` that may be configurations.

    Those of a constructor are named `init.config`.
    """
    path = name.split(".")
    top = file.graph.index.definitions.get(path[0])
    reader = _ReadCollector(roots, overlays)
    reads_by_name: dict[str, Reads] = {}
    if isinstance(top, FUNCTIONS):
        reads_by_name |= reader.of_function(Definition(file, top), {})
    elif isinstance(top, ast.ClassDef):
        constructor = reader.constructor(Definition(file, top))
        if constructor is not None:
            reads_by_name |= {f"init.{name}": reads for name, reads in reader.of_class(Definition(file, top)).items()}
        method = _method(top, path[1] if len(path) > 1 else "forward")
        if method is not None:
            reads_by_name |= reader.of_function(Definition(file, method), {})
    return {name: reads for name, reads in reads_by_name.items() if _is_configuration(reads)}


def _is_configuration(reads: Reads) -> bool:
    required = {name for name, inner in reads.parts.items() if inner.needed}
    return bool(required) and not required & _OF_TENSORS


def _method(definition: ast.ClassDef, name: str) -> FunctionNode | None:
    return next((node for node in definition.body if isinstance(node, FUNCTIONS) and node.name == name), None)


def _parameters(function: FunctionNode, bound: bool) -> list[ast.arg]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    return [*positional[1 if bound else 0 :], *arguments.kwonlyargs]


def _is_bound(function: FunctionNode) -> bool:
    first = [*function.args.posonlyargs, *function.args.args][:1]
    return bool(first) and first[0].arg in ("self", "cls")


@dataclass
class _ReadCollector:
    """Collect reads; `_seen` are the functions that were followed with a configuration."""

    roots: Sequence[str]
    overlays: Mapping[str, str]
    _seen: set[tuple[int, str, int]] = field(default_factory=set[tuple[int, str, int]])
    _depth: int = 0

    def of_function(self, definition: Definition, passed: Mapping[str, Reads]) -> dict[str, Reads]:
        """Return the reads of a function's parameters; reads of `passed` parameters are added to these."""
        function = definition.node
        assert isinstance(function, FUNCTIONS)
        reads: dict[str, Reads] = {}
        for parameter in _parameters(function, _is_bound(function)):
            if parameter.arg in passed:
                reads[parameter.arg] = passed[parameter.arg]
            elif not passed and not self._is_stated(parameter, definition.file):
                reads[parameter.arg] = Reads()
        self._follow(definition.file, [function], dict(reads), None)
        return reads

    def of_class(self, definition: Definition, passed: Mapping[str, Reads] | None = None) -> dict[str, Reads]:
        """Return the reads of a class's constructor parameters, in any of its methods."""
        constructor = self.constructor(definition)
        if constructor is None or not isinstance(constructor.node, FUNCTIONS):
            return {}
        reads: dict[str, Reads] = {}
        for parameter in _parameters(constructor.node, bound=True):
            if passed is not None and parameter.arg in passed:
                reads[parameter.arg] = passed[parameter.arg]
            elif passed is None and not self._is_stated(parameter, constructor.file):
                reads[parameter.arg] = Reads()
        names = dict(reads)
        owner = definition.node
        assert isinstance(owner, ast.ClassDef)
        self._follow(constructor.file, [constructor.node], names, definition)
        kept = {name: inner for name, inner in names.items() if name.startswith("self.")}
        others = [node for node in owner.body if isinstance(node, FUNCTIONS) and node is not constructor.node]
        if kept and others:
            self._follow(definition.file, others, kept, definition)
        return reads

    def constructor(self, definition: Definition) -> Definition | None:
        """Return the `__init__` of a class, or the first inherited one; None without any."""
        node = definition.node
        if not isinstance(node, ast.ClassDef):
            return None
        own = _method(node, "__init__")
        if own is not None:
            return Definition(definition.file, own)
        bases = (self.find(definition.file, base) for base in node.bases)
        return next((init for base in bases if base is not None and (init := self.constructor(base))), None)

    def _is_stated(self, parameter: ast.arg, file: ProjectFile) -> bool:
        """Return True if an annotation declares a parameter as a tensor, or as a class of the project."""
        annotation = parameter.annotation
        if annotation is None:
            return False
        names = [part for part in walk(annotation) if isinstance(part, (ast.Name, ast.Attribute))]
        return mentions_tensor(annotation) or any(self.find(file, name) is not None for name in names)

    def _follow(
        self, file: ProjectFile, functions: Sequence[FunctionNode], names: dict[str, Reads], owner: Definition | None
    ) -> None:
        """Add the reads of `names` in functions; variables that these are assigned to are added to `names`."""
        nodes = [node for function in functions for node in walk(*function.body)]
        self._add_variables([node for node in nodes if isinstance(node, ast.Assign)], names)
        stored: list[Reads] = []
        for node in nodes:
            if isinstance(node, ast.Call):
                self._call(node, file, names, owner)
            elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
                whole = self._reads(node.comparators[0], names)
                if whole is not None:
                    _named_part(whole, [node.left])
            elif isinstance(node, (ast.Attribute, ast.Subscript)):
                part = self._reads(node, names)
                stored += [part] if part is not None and isinstance(node.ctx, ast.Store) else []
        for reads in stored:
            reads.needed = False

    def _add_variables(self, assignments: list[ast.Assign], names: dict[str, Reads]) -> None:
        """Add the variables that configurations and parts of them are assigned to: `self.config = config`, `model =
        config.model`.
        """
        for node in sorted(assignments, key=lambda assignment: assignment.lineno) * 2:
            value = self._reads(node.value, names)
            for target in node.targets if value is not None else ():
                if (dotted := _dotted(target)) and value is not None:
                    names.setdefault(dotted, value)

    def _reads(self, node: ast.expr, names: Mapping[str, Reads]) -> Reads | None:
        """Return the reads of an expression's value, if it is a configuration or a part of one; else None."""
        dotted = _dotted(node)
        if dotted in names:
            return names[dotted]
        if isinstance(node, ast.Attribute):
            whole = self._reads(node.value, names)
            return None if whole is None or node.attr.startswith("__") else whole.part(node.attr)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            whole, key = self._reads(node.value, names), node.slice.value
            if whole is None or not isinstance(key, str):
                return None
            whole.by_key = True
            return whole.part(key)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _DICT_METHODS:
            whole = self._reads(node.func.value, names)
            return None if whole is None else _named_part(whole, node.args[:1])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr"):
            whole = self._reads(node.args[0], names) if node.args else None
            return None if whole is None else _named_part(whole, node.args[1:2])
        return None

    def _call(self, node: ast.Call, file: ProjectFile, names: dict[str, Reads], owner: Definition | None) -> None:
        """Process a call: a method name of a configuration is not one of its names; passed arguments are followed."""
        if self._reads(node, names) is not None:
            return
        passed_on: list[tuple[int | str | None, Reads]] = []
        for place, argument in (*enumerate(node.args), *((k.arg, k.value) for k in node.keywords)):
            if not isinstance(argument, ast.Starred) and (reads := self._reads(argument, names)) is not None:
                passed_on.append((place, reads))
        if not passed_on or self._depth >= MAX_DEPTH:
            return
        callee = self._callee(node.func, file, owner)
        if callee is None:
            return
        self._depth += 1
        function = self.constructor(callee) if isinstance(callee.node, ast.ClassDef) else callee
        if function is not None and isinstance(function.node, FUNCTIONS):
            is_method = isinstance(callee.node, ast.ClassDef) or _is_bound(function.node)
            parameters = _parameters(function.node, is_method)
            passed: dict[str, Reads] = {}
            for place, reads in passed_on:
                if place is None:
                    _spread(function.node, parameters, reads)
                elif isinstance(place, str):
                    passed |= {place: reads} if any(p.arg == place for p in parameters) else {}
                elif place < len(parameters):
                    passed[parameters[place].arg] = reads
            self._pass_on(callee, passed)
        self._depth -= 1

    def _pass_on(self, callee: Definition, passed: Mapping[str, Reads]) -> None:
        fresh = {n: r for n, r in passed.items() if (id(callee.node), n, id(r)) not in self._seen}
        self._seen.update((id(callee.node), n, id(r)) for n, r in fresh.items())
        if not fresh:
            return
        if isinstance(callee.node, ast.ClassDef):
            self.of_class(callee, fresh)
        else:
            self.of_function(callee, fresh)

    def _callee(self, function: ast.expr, file: ProjectFile, owner: Definition | None) -> Definition | None:
        """Return the called function or class of the project: by its name, of a module, of `self`, or of a base; None
        for any other.
        """
        if isinstance(function, ast.Attribute) and owner is not None and isinstance(owner.node, ast.ClassDef):
            if _dotted(function.value) in ("self", "cls"):
                method = _method(owner.node, function.attr)
                return Definition(owner.file, method) if method is not None else None
            is_super = isinstance(function.value, ast.Call) and _dotted(function.value.func) == "super"
            if function.attr == "__init__" and (is_super or isinstance(function.value, ast.Name)):
                return next((d for base in owner.node.bases if (d := self.find(owner.file, base))), None)
        return self.find(file, function)

    def find(self, file: ProjectFile, node: ast.AST) -> Definition | None:
        """Return the definition in the project that an expression names, or None."""
        if isinstance(node, ast.Name):
            return self._defined(file, node.id, MAX_DEPTH)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            origin = file.graph.index.origins.get(node.value.id)
            if origin is None:
                return None
            module, name, level = origin
            inner = f"{module}.{name}" if module and name else module or name
            there = self._module(file, inner, level)
            return self._defined(there, node.attr, MAX_DEPTH) if there is not None else None
        return None

    def _defined(self, file: ProjectFile, name: str, depth: int) -> Definition | None:
        if (node := file.graph.index.definitions.get(name)) is not None:
            return Definition(file, node)
        origin = file.graph.index.origins.get(name)
        if origin is None or not origin[1] or depth == 0:
            return None
        module, original, level = origin
        there = self._module(file, module, level)
        return self._defined(there, original, depth - 1) if there is not None else None

    def _module(self, file: ProjectFile, module: str, level: int) -> ProjectFile | None:
        """Return the file of a module imported in `file`, or None."""
        parts = module.split(".") if module else []
        here = Path(file.file).parent
        starts = [here.parents[level - 2] if level > 1 else here] if level else [*map(Path, self.roots), here]
        for start in starts:
            for path in (start.joinpath(*parts).with_suffix(".py"), start.joinpath(*parts, "__init__.py")):
                if parts or path.name == "__init__.py":
                    there = read_file(str(path), self.overlays)
                    if there is not None:
                        return there
        return None


def _named_part(whole: Reads, names: Sequence[ast.expr]) -> Reads | None:
    """Return the part of a configuration that a call names, with a default value."""
    name = names[0].value if names and isinstance(names[0], ast.Constant) else None
    return whole.part(name, needed=False) if isinstance(name, str) else None


def _spread(function: FunctionNode, parameters: Sequence[ast.arg], reads: Reads) -> None:
    """Add the reads of `f(**config)`: the required parameters of the function."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = {a.arg for a in positional[len(positional) - len(arguments.defaults) :]}
    defaults |= {a.arg for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None}
    reads.by_key = True
    for parameter in parameters:
        reads.part(parameter.arg, needed=parameter.arg not in defaults)


def _dotted(node: ast.AST) -> str:
    """Return `cfg`, or `self.cfg`; "" for anything else."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return f"self.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
