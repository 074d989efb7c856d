"""First file that runs in the user's interpreter: makes `fx_lsp` importable, nothing else of ours, starts the worker.

    python -X utf8 -B …/fx_lsp/tracer/process/bootstrap.py zygote --control FD [options]
    python -X utf8 -B …/fx_lsp/tracer/process/bootstrap.py once [options]

It is started by path: until `sys.path` is fixed it imports only what Python has loaded already (no pathlib), and it
parses on Python 3.7 and later, so that one older than 3.10 gets a sentence and no traceback.
"""
# ruff: noqa: UP036

from __future__ import annotations

import os
import sys

NICENESS = 10
"""The niceness of processes that trace: they stand back behind the editor, where both want one processor (POSIX)."""


def main(argv: list[str]) -> None:
    """Run the role that `argv` names; returns when the server has gone."""
    if sys.version_info < (3, 10):
        sys.exit("fx-lsp needs Python 3.10 or newer; {} is {}.{}".format(sys.executable, *sys.version_info[:2]))
    _forget_start_directories()
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["zygote", "once"])
    parser.add_argument("--control", type=int, default=-1)
    parser.add_argument("--job", default="fx_lsp.tracer.job:replies")
    parser.add_argument("--path", action="append", default=[])
    parser.add_argument("--pythonpath", default="")
    parser.add_argument("--scratch", default="")
    parser.add_argument("--allow-read", action="append", default=[])
    parser.add_argument("--allow-program", action="append", default=[])
    parser.add_argument("--no-warm", dest="warm", action="store_false")
    options = parser.parse_args(argv)

    sys.dont_write_bytecode = True
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    _register_package(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    from fx_lsp.tracer.program.paths import insert_user_paths

    if options.pythonpath:
        os.environ["PYTHONPATH"] = options.pythonpath
        insert_user_paths(p for p in options.pythonpath.split(os.pathsep) if p)
    insert_user_paths(options.path)
    if options.scratch:
        from fx_lsp.sandbox.confinement import Allowance, begin

        begin(options.scratch, Allowance(tuple(options.allow_read), tuple(options.allow_program)))

    if options.role == "zygote":
        from fx_lsp.tracer.process import zygote

        zygote.main(options.control, options.job, options.warm)
    else:
        from fx_lsp.tracer.process import child

        child.main(options.job, options.warm)


def _forget_start_directories() -> None:
    """Take this file's directory (a script's `sys.path[0]`) and the current one ("") off `sys.path`."""
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if p and os.path.abspath(p) != own]


def _register_package(directory: str) -> None:
    """Make `directory` importable as `fx_lsp` without its parent on `sys.path`."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(
        "fx_lsp", os.path.join(directory, "__init__.py"), submodule_search_locations=[directory]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"no fx_lsp in {directory}")
    package = module_from_spec(spec)
    sys.modules["fx_lsp"] = package
    spec.loader.exec_module(package)


if __name__ == "__main__":
    main(sys.argv[1:])
