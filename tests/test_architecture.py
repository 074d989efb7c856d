"""The table of layers in docs/explanation/architecture.md, and what must never be loaded where."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from stdio import session

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "fx_lsp"
SHARED = {"files", "model", "measured", "choices", "wire", "errors", "specs", "syntax", "training", "configurations"}

SERVE_AND_LIST_MODULES = """
import atexit, sys
from fx_lsp.server.app import serve
atexit.register(lambda: print(*sys.modules, file=open(sys.argv[1], "w")))
sys.exit(serve(trust_always=True))
"""


def test_layers(monkeypatch: pytest.MonkeyPatch):
    cli = pytest.importorskip("importlinter.cli")
    monkeypatch.chdir(ROOT)
    assert cli.lint_imports(no_cache=True, no_logo=True) == 0


def test_a_server_in_use_loads_neither_torch_nor_numpy(tmp_path: Path):
    modules = tmp_path / "modules"
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    session([sys.executable, "-c", SERVE_AND_LIST_MODULES, str(modules)], ROOT / "examples" / "attention.py", env)
    loaded = set(modules.read_text().split())
    assert {"fx_lsp.tracing.engine", "pygls"} <= loaded
    assert not {"torch", "numpy", "fx_lsp.tracer"} & loaded


def test_the_library_loads_neither_torch_nor_pygls():
    loaded = modules_after("import fx_lsp, fx_lsp.model, fx_lsp.wire, fx_lsp.specs, fx_lsp.errors")
    assert not {"torch", "numpy", "pygls", "lsprotocol", "asyncio"} & loaded


@pytest.mark.parametrize("target", ["none.py::f", "norms.py::no_such_name"])
def test_the_command_line_loads_no_language_server(target: str):
    arguments = ["graph", str(ROOT / "examples" / target), "--no-cache"]
    loaded = modules_after(f"from fx_lsp.cli import main; main({arguments!r})")
    assert "fx_lsp.tracing.engine" in loaded
    assert not {"torch", "pygls", "lsprotocol", "attrs"} & loaded


@pytest.mark.parametrize("file", sorted((PACKAGE / "tracer").rglob("*.py")), ids=lambda f: f.stem)
def test_the_tracer_needs_nothing_but_torch_and_what_torch_brings(file: Path):
    allowed = sys.stdlib_module_names | {"torch", "sympy", "fx_lsp.tracer"} | {f"fx_lsp.{name}" for name in SHARED}
    allowed |= {"fx_lsp.codegen", "fx_lsp.messages", "fx_lsp.numerics", "fx_lsp.sandbox"}
    assert {name for name in imported(file) if not within(name, allowed)} <= {"fx_lsp"}


@pytest.mark.parametrize(
    "file",
    [file for name in sorted(SHARED) for file in (*PACKAGE.glob(f"{name}.py"), *sorted(PACKAGE.glob(f"{name}/*.py")))],
    ids=lambda file: file.relative_to(PACKAGE).as_posix(),
)
def test_what_both_sides_import_needs_nothing(file: Path):
    allowed = sys.stdlib_module_names | {f"fx_lsp.{other}" for other in SHARED}
    assert {name for name in imported(file) if not within(name, allowed)} == set()


@pytest.mark.parametrize("file", sorted((PACKAGE / "messages").glob("*.py")), ids=lambda f: f.stem)
def test_messages_need_nothing_but_the_model(file: Path):
    allowed = sys.stdlib_module_names | {"fx_lsp.model", "fx_lsp.messages"}
    assert {name for name in imported(file) if not within(name, allowed)} == set()


def modules_after(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after `code`."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def imported(file: Path) -> set[str]:
    """The dotted names that a file imports; `from fx_lsp import x` counts as `fx_lsp.x`."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module
            names |= {f"fx_lsp.{a.name}" for a in node.names} if node.module == "fx_lsp" else {node.module}
    return names


def within(name: str, packages: frozenset[str] | set[str]) -> bool:
    parts = name.split(".")
    return any(".".join(parts[: end + 1]) in packages for end in range(len(parts)))
