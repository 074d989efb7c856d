"""The shape of the code: rules that hold everywhere. `python tests/test_structure.py` prints what breaks one."""

from __future__ import annotations

import ast
import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "fx_lsp"

MAX_MODULES = 15
"""How many modules a folder may have."""

MAX_COMPLEXITY = 20
"""How many ways a function may have: branches, loops, handlers, comprehensions, conditions, parts of `and` and `or`."""

MAX_PARAMETERS = 5
"""How many parameters a function may have, without `self` and `cls`."""

OF_TORCH, OF_THE_LIBRARY = "the parameters of a function of PyTorch", "the options of the library, by keyword"
OF_A_CONNECTION = "a handler takes the parts of a connection that it uses by name (`server/app.py`)"
LONG_SIGNATURES = {
    "fx_lsp.api:generate_forward_and_backward_graph": OF_THE_LIBRARY,
    "fx_lsp.api:trace": OF_THE_LIBRARY,
    "fx_lsp.codegen.graph.decompositions:decompose_attention": OF_TORCH,
    "fx_lsp.tracer.program.gpu.tensors:_attention": OF_TORCH,
    "fx_lsp.tracer.program.weights:_not_downloaded": OF_TORCH,
    "fx_lsp.tracer.run.operations.lengths:_ctc_losses": OF_TORCH,
    "fx_lsp.tracer.run.operations.recurrent:_backward_specs": OF_TORCH,
    "fx_lsp.tracer.run.values.constants:_with_one_count": "those of `__torch_dispatch__`",
    "fx_lsp.server.requests.benchmark:bench": OF_A_CONNECTION,
    "fx_lsp.server.requests.text_sync:did_close": OF_A_CONNECTION,
}
"""Functions with more parameters, and who decides on these."""

VAGUE = {"found", "known", "made", "taken", "given"}
"""Names of variables that do not say what they hold."""

OPENING = {"read_text", "read_bytes", "write_text", "write_bytes", "open", "NamedTemporaryFile", "mkstemp", "replace"}
"""Functions and methods of files, and of paths, that `files` is there to call."""

OPENS_FILES = {
    "fx_lsp/files.py": "it is that place",
    "fx_lsp/cli.py": "the null device",
    "fx_lsp/server/protocol.py": "the same",
    "fx_lsp/tracer/record/": "runs in the user's program, where nothing else of fx-lsp is imported",
    "fx_lsp/commands/outputs.py": "writes to devices that the user names",
    "fx_lsp/bench/": "the folder of a job, on another machine, where there is no fx_lsp.files",
    "fx_lsp/tracing/remote/supervisor.py": "the same",
    "fx_lsp/tracing/remote/prober.py": "the same",
    "fx_lsp/tracing/remote/payload.py": "files of fx-lsp itself",
    "fx_lsp/tracing/workers/": "what the kernel and the interpreter say",
    "fx_lsp/tracer/process/": "its own descriptors, and what the kernel says",
    "fx_lsp/tracer/program/": "what the user's code does, on a scratch folder",
    "fx_lsp/sandbox/": "what the kernel and installers say, before anything else of fx-lsp is imported",
    "fx_lsp/codegen/inspect/": "files of Triton's, in a folder of its own",
    "fx_lsp/commands/doctor.py": "a sample, in a folder of its own",
}
"""Where files are opened otherwise, and what they are."""

FROM_A_CONFINED_PROCESS = "in a process that is confined to the project first"
EVALUATES = {
    "fx_lsp/bench/variant/": "the file of kernels that the user benchmarks, with the user's rights",
    "fx_lsp/codegen/inspect/compilation.py": f"a file of kernels, {FROM_A_CONFINED_PROCESS}",
    "fx_lsp/tracer/analyses/guards.py": f"conditions of Dynamo, {FROM_A_CONFINED_PROCESS}",
    "fx_lsp/tracer/dimensions/annotations.py": f"annotations and sizes of the target, {FROM_A_CONFINED_PROCESS}",
    "fx_lsp/tracer/failures/frames.py": f"expressions of the user's code in its frame, {FROM_A_CONFINED_PROCESS}",
    "fx_lsp/tracer/inputs/": f"the user's code, and conditions on sizes, {FROM_A_CONFINED_PROCESS}",
    "fx_lsp/tracer/program/": f"the user's code, {FROM_A_CONFINED_PROCESS}",
    "fx_lsp/tracer/rehearsal/": f"the user's code, {FROM_A_CONFINED_PROCESS}",
    "fx_lsp/tracer/world/": f"the user's code, {FROM_A_CONFINED_PROCESS}",
    "fx_lsp/tracing/remote/cluster.py": "its own text; what the cluster sends, which the user has confirmed",
    "fx_lsp/tracing/remote/supervisor.py": "on the host, the task of the server",
}
"""Where text is evaluated or data unpickled: what, and where it runs. Nothing that a process with code of a workspace
has sent is evaluated in another one.
"""

EVALUATING = re.compile(
    r"(builtins\.)?(eval|exec)|(c?pickle|dill|cloudpickle|joblib|marshal|shelve|runpy)\.\w+|torch\.load"
)
"""Functions that run what they read."""

USER_FILES = (
    "diagnostics/cases",
    "e2e/vscode/transformer",
    "fixtures",
    "golden",
    "shown/cases",
    "tracer/cases",
    "truth/cases",
)
"""Folders below `tests/` with files of a user's, which nothing imports."""

BORROWS = {"e2e": "server"}
"""Folders whose tests import the helpers of another one: an editor and a client speak to the same server."""

WITHOUT_TORCH = {"diagnostics", "e2e", "features", "remote", "server"}
"""Folders whose tests import neither torch nor what needs it: they start processes, or have prepared answers."""

QUESTIONS = ("What ", "Whether ", "How ", "Where ", "Which ", "Why ")
"""How docstrings do not begin: they begin with a verb."""


def test_no_folder_has_too_many_modules() -> None:
    assert crowded_folders() == {}


def test_files_are_read_and_written_in_one_place() -> None:
    assert openers() == set()


def test_text_is_evaluated_only_where_a_reason_is_written() -> None:
    places = set(evaluating_files())
    assert sorted(place for place in places if not place.startswith(tuple(EVALUATES))) == []
    assert [allowed for allowed in EVALUATES if not any(place.startswith(allowed) for place in places)] == []


def test_no_imports_go_in_a_circle() -> None:
    """Those for types alone, and those within functions, count."""
    assert circles(imports()) == []


def test_a_class_name_has_one_meaning() -> None:
    assert shared_class_names() == {}


def test_no_function_is_too_complex() -> None:
    assert complex_functions() == {}


def test_no_function_has_too_many_parameters() -> None:
    assert long_signatures().keys() - LONG_SIGNATURES.keys() == set()


def test_variables_say_what_they_hold() -> None:
    assert vague_variables() == {}


def test_docstrings_begin_with_a_verb() -> None:
    assert question_docstrings() == {}


def test_tests_import_helpers_of_their_folder_and_no_other_tests() -> None:
    assert imports_of_other_tests() == {}


def test_helpers_have_different_names() -> None:
    """They are imported by these, whatever folder they are in."""
    assert [name for name, times in Counter(file.stem for file in files_of_tests()).items() if times > 1] == []


def test_tests_of_the_server_import_no_torch() -> None:
    assert imports_of_torch() == set()


@pytest.mark.parametrize(
    "page", [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "CONTRIBUTING.md"], ids=lambda page: page.stem
)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    paths = [
        "/" + file.relative_to(ROOT).as_posix()
        for folder in ("fx_lsp", "tests", "benchmarks", "scripts")
        for file in (ROOT / folder).rglob("*.py")
    ]
    named = re.findall(r"`(?:python )?([\w/]+/\w+\.py)`", page.read_text(encoding="utf-8"))
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in paths)] == []


def test_the_page_on_architecture_begins_with_where_to_change_what() -> None:
    rows = table_of_places()
    assert len(rows) >= 20
    assert [(change, path) for change, paths in rows for path in paths or ["no path"] if not is_there(path)] == []


def test_the_page_on_architecture_has_a_line_for_each_folder() -> None:
    lines = re.findall(
        r"^\| `([\w/]+)/`", (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8"), re.M
    )
    folders = {file.parent.relative_to(PACKAGE).as_posix() for file in files()} - {"."}
    assert sorted({folder for folder in folders if folder.count("/") < 2} - set(lines)) == []
    assert sorted(set(lines) - folders) == []


@pytest.mark.parametrize(
    "source, ways",
    [
        ("def f(x):\n return x", 1),
        ("def f(x):\n if x and x > 1:\n  return 1", 3),
        ("def f(x):\n return [a for a in x if a]", 3),
        ("def f(x):\n return 1 if x else 2", 2),
    ],
)
def test_ways_through_a_function_are_counted(source: str, ways: int) -> None:
    assert complexity(ast.parse(source).body[0]) == ways


@pytest.mark.parametrize(
    "signature, parameters",
    [("a, /, b, c=1, *, d, e=None", 5), ("self, a", 1), ("cls, *, a", 1), ("a, *args, **kwargs", 1)],
)
def test_parameters_are_counted_without_the_instance(signature: str, parameters: int) -> None:
    assert parameters_of(ast.parse(f"def f({signature}): ...").body[0]) == parameters


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [{"b", "c"}]


def evaluating_files() -> Iterator[str]:
    """Yield the files that evaluate text or unpickle data, also in a text of theirs that is Python."""
    for file in files():
        trees = [ast.parse(file.read_text(encoding="utf-8"))]
        texts = [node.value for node in ast.walk(trees[0]) if isinstance(node, ast.Constant)]
        for text in texts:
            with suppress(SyntaxError, ValueError):
                trees += [ast.parse(textwrap.dedent(text))] if isinstance(text, str) else []
        calls = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args)
        if any(EVALUATING.fullmatch(ast.unparse(call.func)) for call in calls):
            yield file.relative_to(ROOT).as_posix()


def table_of_places() -> list[tuple[str, list[str]]]:
    """Return what one may want to change, and the paths to open for it, from the beginning of the page."""
    beginning = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8").partition("\n## ")[0]
    cells = [line.strip("|").split("|") for line in beginning.splitlines() if line.startswith("| ")]
    return [(change.strip(), re.findall(r"`([\w./-]+)`", places)) for change, places in cells[1:]]


def is_there(path: str) -> bool:
    """Return whether a path below the package, or below the repository's root, is there: a folder if it ends in `/`."""
    return any((base / path).is_dir() if path.endswith("/") else (base / path).is_file() for base in (PACKAGE, ROOT))


def crowded_folders() -> dict[str, int]:
    """Return the folders of the package, and of the tests of the tracer, with too many modules, with how many."""
    modules = Counter(
        file.parent.relative_to(ROOT).as_posix()
        for file in (*files(), *(ROOT / "tests/tracer").rglob("*.py"))
        if file.stem != "__init__"
    )
    return {folder: number for folder, number in sorted(modules.items()) if number > MAX_MODULES}


def openers() -> set[str]:
    """Return the modules that open files, or make temporary ones, and are not among those that may."""
    return {
        path
        for file in files()
        for node in ast.walk(tree(file))
        if isinstance(node, ast.Call) and _opens(node)
        if not any((path := file.relative_to(ROOT).as_posix()).startswith(place) for place in OPENS_FILES)
    }


def _opens(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Name):
        return call.func.id == "open"
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in OPENING:
        return False
    owner = call.func.value
    if call.func.attr in ("open", "replace"):
        return isinstance(owner, ast.Name) and owner.id == "os"
    return not (isinstance(owner, ast.Name) and owner.id == "files")


def shared_class_names() -> dict[str, int]:
    """Return the class names that are used more than once, with how often."""
    names = Counter(n.name for file in files() for n in ast.walk(tree(file)) if isinstance(n, ast.ClassDef))
    return {name: times for name, times in sorted(names.items()) if times > 1}


def complex_functions() -> dict[str, int]:
    """Return the functions with too many ways through them, with how many there are."""
    measured = {name: complexity(function) for name, function in functions()}
    return {name: ways for name, ways in sorted(measured.items()) if ways > MAX_COMPLEXITY}


def long_signatures() -> dict[str, int]:
    """Return the functions with too many parameters, those within others included, with how many they have."""
    counted: dict[str, int] = {}
    for name, function in functions():
        for node in ast.walk(function):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                counted[name if node is function else f"{name}.{node.name}"] = parameters_of(node)
    return {name: number for name, number in sorted(counted.items()) if number > MAX_PARAMETERS}


def parameters_of(function: ast.AST) -> int:
    """Return the number of parameters of a function, without `self` and `cls`, and without `*` and `**`."""
    assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    bound = bool(positional) and positional[0].arg in ("self", "cls")
    return len(positional) + len(arguments.kwonlyargs) - bound


def vague_variables() -> dict[str, int]:
    """Return, for each part of the package, how many functions assign a vague name, counted for each name."""
    vague: Counter[str] = Counter()
    for name, function in functions():
        stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        stored |= {n.arg for n in ast.walk(function) if isinstance(n, ast.arg)}
        vague[part_of(name)] += len(stored & VAGUE)
    return {part: number for part, number in sorted(vague.items()) if number}


def imports_of_other_tests() -> dict[str, set[str]]:
    """Return the tests and helpers that import other tests, or helpers of folders that are not their own."""
    modules = {name: file for file in files_of_tests() for name in (file.stem, f"{file.parent.name}.{file.stem}")}
    wrong: dict[str, set[str]] = defaultdict(set)
    for file in files_of_tests():
        for other in {modules[name] for name in imported_names(file) & modules.keys()}:
            if other.name.startswith("test_") or not lends(other.parent, file.parent):
                wrong[file.relative_to(ROOT).as_posix()].add(other.relative_to(ROOT).as_posix())
    return dict(wrong)


def lends(folder: Path, user: Path) -> bool:
    """Return whether the helpers of a folder are for the tests of another: it is the same, or around it or inside."""
    return folder.name == BORROWS.get(user.name) or folder.is_relative_to(user) or user.is_relative_to(folder)


def imports_of_torch() -> set[str]:
    """Return the tests that import torch, or what needs it, in folders that do without."""
    needs = re.compile(r"(torch|triton|fx_lsp\.(tracer|codegen))(\.|$)")
    files = (file for file in files_of_tests() if file.relative_to(ROOT / "tests").parts[0] in WITHOUT_TORCH)
    return {file.relative_to(ROOT).as_posix() for file in files if any(map(needs.match, imported_names(file)))}


def question_docstrings() -> dict[str, int]:
    """Return, for each part of the package, how many docstrings of functions begin with a question."""
    questions: Counter[str] = Counter()
    for name, function in functions():
        questions[part_of(name)] += (ast.get_docstring(function) or "").startswith(QUESTIONS)
    return {part: number for part, number in sorted(questions.items()) if number}


@cache
def files() -> tuple[Path, ...]:
    """Return the Python files of the package."""
    return tuple(sorted(PACKAGE.rglob("*.py")))


@cache
def files_of_tests() -> tuple[Path, ...]:
    """Return the modules of the tests, and their helpers."""
    tests = ROOT / "tests"
    users = tuple(tests / folder for folder in USER_FILES)
    return tuple(file for file in sorted(tests.rglob("*.py")) if not any(map(file.is_relative_to, users)))


def imported_names(file: Path) -> set[str]:
    """Return the dotted names of the modules that a file imports, wherever it does."""
    names: set[str] = set()
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@cache
def tree(file: Path) -> ast.Module:
    """Return a file as it parses."""
    return ast.parse(file.read_text(encoding="utf-8"))


def module_of(file: Path) -> str:
    """Return the dotted name of a file."""
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def part_of(name: str) -> str:
    """Return the part of the package that a dotted name lies in: `fx_lsp.tracer`."""
    return ".".join(name.split(".")[:2]).partition(":")[0]


def functions() -> Iterator[tuple[str, ast.AST]]:
    """Yield every function, those within others alone included, by `module:Class.function`."""

    def inside(node: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                longer = f"{name}{'' if name.endswith(':') else '.'}{child.name}"
                if isinstance(child, ast.ClassDef):
                    yield from inside(child, longer)
                else:
                    yield longer, child
            else:
                yield from inside(child, name)

    for file in files():
        yield from inside(tree(file), f"{module_of(file)}:")


def complexity(function: ast.AST) -> int:
    """Return the number of ways through a function, with the functions in it."""
    ways = 1
    for node in ast.walk(function):
        if isinstance(node, (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler)):
            ways += 1
        elif isinstance(node, ast.comprehension):
            ways += 1 + len(node.ifs)
        elif isinstance(node, ast.BoolOp):
            ways += len(node.values) - 1
        elif isinstance(node, ast.Match):
            ways += len(node.cases)
    return ways


def imports() -> dict[str, set[str]]:
    """Return the modules of the package that each of them imports, wherever it does."""
    modules = {module_of(file) for file in files()}
    imported: dict[str, set[str]] = defaultdict(set)
    for file in files():
        name = module_of(file)
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.Import):
                imported[name] |= modules & {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                longer = {f"{node.module}.{alias.name}" for alias in node.names}
                imported[name] |= (longer & modules) or ({node.module} & modules)
    return {name: others - {name} for name, others in imported.items()}


def circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Return the sets of nodes that reach each other."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen, stack = set[str](), [start]
        while stack:
            for other in graph.get(stack.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    stack.append(other)
        reached[start] = seen
    together = {frozenset(n for n in reached[a] if a in reached.get(n, ())) for a in graph if a in reached[a]}
    return [set(circle) for circle in together]


if __name__ == "__main__":
    print("CIRCLES =", sorted(map(sorted, circles(imports()))))
    measures = crowded_folders, shared_class_names, complex_functions, long_signatures, vague_variables
    for measure in (*measures, question_docstrings):
        print(measure.__name__, "=", measure())
