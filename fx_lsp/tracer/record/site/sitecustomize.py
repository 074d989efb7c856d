"""Start the recorder: Python imports this module at its start, before the user's program, from `fx-lsp record`'s
PYTHONPATH.

It waits for the import of torch and starts the recorder then, so that a program without torch has no overhead. The
environment's own sitecustomize runs as if this one did not exist. Parses and starts quickly on Python 3.6 and later.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))


def prepare() -> None:
    """Start the recorder as soon as torch is imported."""
    settings = os.environ.get("FX_LSP_RECORD")
    if not settings or sys.version_info < (3, 10):  # any Python may run this
        return
    directory = os.getcwd()
    sys.meta_path.insert(0, _TorchFinder(lambda: _start(settings, directory)))


def hand_on() -> None:
    """Import the sitecustomize that this one hides. Its exceptions are the environment's own problem."""
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or os.curdir) != _HERE]
    sys.path_importer_cache.pop(_HERE, None)
    own = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ImportError as error:
        if error.name != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, own)


class _TorchFinder:
    """Find torch as the other finders do, and call `then` once it has been imported."""

    def __init__(self, then: "Callable[[], None]") -> None:
        self._then = then

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "ModuleSpec | None":
        if name != "torch":
            return None
        finders = [f for f in sys.meta_path if f is not self and hasattr(f, "find_spec")]
        spec = next((s for s in (f.find_spec(name, path, target) for f in finders) if s is not None), None)
        loader: Any = spec and spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return spec

        def exec_module(module: "ModuleType") -> None:
            del loader.exec_module
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._then()

        loader.exec_module = exec_module
        return spec


def _start(settings: str, directory: str) -> None:
    try:
        _load("fx_lsp.tracer.record.recorder").start(settings, directory)
    except Exception as error:
        _say(error)


def _load(name: str) -> "Any":
    """Import a module of fx_lsp, and remove all of fx_lsp from `sys.modules` again: the program may have its own."""
    from importlib import import_module
    from importlib.util import module_from_spec, spec_from_file_location

    directory = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))
    theirs = {n: sys.modules.pop(n) for n in _loaded()}
    try:
        init = os.path.join(directory, "__init__.py")
        spec = spec_from_file_location("fx_lsp", init, submodule_search_locations=[directory])
        if spec is None or spec.loader is None:
            raise ImportError("no fx_lsp in " + directory)
        sys.modules["fx_lsp"] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules["fx_lsp"])
        return import_module(name)
    finally:
        for n in _loaded():
            del sys.modules[n]
        sys.modules.update(theirs)


def _loaded() -> "list[str]":
    return [n for n in sys.modules if n == "fx_lsp" or n.startswith("fx_lsp.")]


def _say(error: Exception) -> None:
    sys.stderr.write("fx-lsp record: nothing is recorded in this process: " + repr(error) + "\n")


if __name__ == "sitecustomize":
    try:
        prepare()
    except Exception as error:
        _say(error)
    hand_on()
