"""Compile a kernel of a Python file with Triton and its assemblers, without a GPU.

Only the top level of the file runs. Triton writes no cache and needs no driver; its output is kept. A process runs one
compilation at a time, because Triton's settings and standard error belong to the process.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import io
import linecache
import os
import re
import shutil
import sys
import tempfile
import time
import traceback
import types
import warnings
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fx_lsp.codegen.inspect import listings
from fx_lsp.codegen.inspect.occupancy import CHIPS
from fx_lsp.messages.kernels import (
    ARGUMENT_MISSING,
    CONSTEXPR_MISSING,
    KERNELS_NOT_IMPORTED,
    NO_SUCH_ARGUMENT,
    NO_SUCH_CHIP,
    NO_SUCH_KERNEL,
    NO_TRITON,
    NOT_A_KERNEL,
    NOT_COMPILED,
    UNPARSED_KERNELS,
)
from fx_lsp.model import Failure, Span

Constant = int | float | bool | str | None

_FOLDER = "fx-lsp-kernel-"
_MAX_AGE = 3600
"""The age in seconds after which the folder of a compilation is abandoned."""


@dataclass(frozen=True)
class LaunchSpec:
    """A launch of a kernel as its file makes it.

    `signature` maps every argument without a default to its Triton type (`*fp32`, `i32`, `constexpr`); `constants` has
    the values of the constexpr arguments. `aligned` are the pointers and sizes known to be divisible by 16. `options`
    are further compiler options (`maxnreg`, `num_ctas`, `waves_per_eu`).
    """

    kernel: str
    signature: dict[str, str]
    constants: dict[str, Constant] = field(default_factory=dict[str, Constant])
    aligned: tuple[str, ...] = ()
    num_warps: int = 4
    num_stages: int = 3
    options: dict[str, Constant] = field(default_factory=dict[str, Constant])


@dataclass(frozen=True)
class CompiledKernel:
    """The texts of the compiler stages (`ttir`, …, `ptx` or `amdgcn`), the binary, Triton's metadata, and its
    output.
    """

    path: str
    stages: dict[str, str]
    binary: bytes
    metadata: dict[str, Any]
    log: str


def compile_kernel(text: str, launch: LaunchSpec, target: str, file: str) -> CompiledKernel | Failure:
    """Compile the kernel of `text` that `launch` names for a target of `CHIPS`. `file` is the file of failure spans."""
    if target not in CHIPS:
        return NO_SUCH_CHIP.failure(target=target, targets=", ".join(sorted(CHIPS)))
    _sweep()
    with tempfile.TemporaryDirectory(prefix=_FOLDER) as directory:
        path = str(Path(directory, "fx_lsp_kernel.py"))
        Path(path).write_text(text, encoding="utf-8")
        try:
            with _quiet_triton(directory, path) as recorder, _load_file(text, path, file) as namespace:
                if isinstance(namespace, Failure):
                    return namespace
                source = _compiler_source(namespace, launch, text, file)
                return source if isinstance(source, Failure) else _compile(source, launch, target, recorder, file)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "triton":
                raise
            return NO_TRITON.failure()
        finally:
            linecache.cache.pop(path, None)


def _sweep() -> None:
    """Remove the folders of killed compilations: their time limit was over, or the text had changed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _MAX_AGE:
                shutil.rmtree(folder)


def is_interpreting() -> bool:
    """Return True if this process imported triton to interpret kernels (`TRITON_INTERPRET`): it cannot compile then."""
    if importlib.util.find_spec("triton") is None:
        return False
    triton: Any = importlib.import_module("triton")
    return not isinstance(triton.language.max, triton.JITFunction)


@dataclass
class _Recorder:
    """Record the result of each stage of a compilation, so that the results exist if a later stage fails."""

    path: str
    stages: dict[str, Any] = field(default_factory=dict[str, Any])
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    printed: Callable[[], str] = lambda: ""

    def watch(self, *arguments: Any) -> tuple[str, str]:
        """Return Triton's `add_stages_inspection_hook`. Triton calls it with the stages to wrap, or without for a cache
        key.
        """
        if len(arguments) > 1:
            stages: dict[str, Callable[[Any, Any], Any]] = arguments[1]
            for name, step in list(stages.items()):
                stages[name] = self._recorded(name, step)
        return "fx-lsp", "fx-lsp"

    def _recorded(self, name: str, step: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def run(source: Any, metadata: dict[str, Any]) -> Any:
            self.metadata = metadata
            output = step(source, metadata)
            if name == "ptx":
                output = listings.with_own_lines(output, self.path)
            self.stages[name] = output if isinstance(output, (str, bytes)) else str(output)
            return output

        return run


def _compile(source: Any, launch: LaunchSpec, target: str, recorder: _Recorder, file: str) -> CompiledKernel | Failure:
    triton: Any = importlib.import_module("triton")
    gpu_target: Any = importlib.import_module("triton.backends.compiler").GPUTarget
    backend, _, name = target.partition(":")
    arch = int(name) if backend == "cuda" else name
    options = {"num_warps": launch.num_warps, "num_stages": launch.num_stages, **launch.options}
    try:
        triton.compile(source, target=gpu_target(backend, arch, CHIPS[target].warp_size), options=options)
    except Exception as error:
        message, number = _diagnosis(error, recorder, source.fn.__globals__)
        first, _, rest = message.replace(recorder.path, file).strip().partition("\n")
        text = Path(recorder.path).read_text(encoding="utf-8")
        span = span_of(text, file, number or definition_line(text, launch.kernel))
        return NOT_COMPILED.failure(span, kernel=launch.kernel, target=target, error=first, details=rest.strip())
    texts = {name: output for name, output in recorder.stages.items() if isinstance(output, str)}
    binary = next(output for output in recorder.stages.values() if isinstance(output, bytes))
    return CompiledKernel(recorder.path, texts, binary, dict(recorder.metadata), recorder.printed())


def _compiler_source(namespace: dict[str, Any], launch: LaunchSpec, text: str, file: str) -> Any:
    """Return the source for `triton.compile`, or a Failure if the launch does not fit the kernel."""
    triton: Any = importlib.import_module("triton")
    if launch.kernel not in namespace:
        return NO_SUCH_KERNEL.failure(kernel=launch.kernel)
    span = span_of(text, file, definition_line(text, launch.kernel))
    kernel: Any = namespace[launch.kernel]
    while kernel is not None and not isinstance(kernel, triton.JITFunction):  # below autotune and heuristics
        kernel = getattr(kernel, "fn", None)
    if kernel is None:
        return NOT_A_KERNEL.failure(span, kernel=launch.kernel)
    names: list[str] = kernel.arg_names
    defaults = {p.name: p.default for p in kernel.params if p.has_default and p.name not in launch.signature}
    failure = _misfit(launch, names, defaults, span)
    if failure is not None:
        return failure
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in launch.aligned if name in names}
    signature = {name: launch.signature.get(name, "constexpr") for name in names}
    return triton.compiler.ASTSource(kernel, signature, launch.constants | defaults, attributes)


def _misfit(launch: LaunchSpec, names: Sequence[str], defaults: Collection[str], span: Span | None) -> Failure | None:
    """Return the failure of a launch whose arguments are not those that a kernel takes, None if they are."""
    unknown = [name for name in {**launch.signature, **launch.constants} if name not in names]
    if unknown:
        return NO_SUCH_ARGUMENT.failure(span, kernel=launch.kernel, argument=unknown[0])
    missing = [name for name in names if name not in launch.signature and name not in defaults]
    if missing:
        return ARGUMENT_MISSING.failure(span, kernel=launch.kernel, argument=missing[0])
    constants = [name for name, kind in launch.signature.items() if kind == "constexpr"]
    valueless = [name for name in constants if name not in launch.constants]
    if valueless:
        return CONSTEXPR_MISSING.failure(span, kernel=launch.kernel, argument=valueless[0])
    return None


@contextlib.contextmanager
def _load_file(text: str, path: str, file: str) -> Generator[dict[str, Any] | Failure]:
    """Run the top level of the file and yield its names, or a Failure. Its module stays importable until the exit."""
    module = types.ModuleType("fx_lsp_kernel")
    module.__file__ = path
    sys.modules[module.__name__] = module
    try:
        exec(compile(text, path, "exec"), vars(module))
        outcome: dict[str, Any] | Failure = vars(module)
    except SyntaxError as error:
        line = error.lineno if error.filename == path else None
        outcome = UNPARSED_KERNELS.failure(span_of(text, file, line or 0), error=error.msg)
    except (Exception, SystemExit) as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        line = frames[-1].lineno if frames else None
        message = f"{type(error).__name__}: {error}".rstrip(": ")
        outcome = KERNELS_NOT_IMPORTED.failure(span_of(text, file, line or 0), error=message)
    try:
        yield outcome
    finally:
        del sys.modules[module.__name__]


def _diagnosis(error: Exception, recorder: _Recorder, names: dict[str, Any]) -> tuple[str, int]:
    """Return the error of a kernel and its line, which is 0 if the error has none."""
    path = recorder.path
    diagnostic = re.search(rf"^{re.escape(path)}:(\d+):\d+: error: (.*)$", recorder.printed(), re.MULTILINE)
    if type(error).__name__ == "PTXASError":
        return _assembler_message(str(error), recorder.stages.get("ptx", ""), path)
    if diagnostic:
        return diagnostic[2], int(diagnostic[1])
    return _triton_message(error, names)


def _triton_message(error: Exception, names: dict[str, Any]) -> tuple[str, int]:
    message, line = "", 0
    seen: BaseException | None = error
    if not hasattr(error, "node"):
        message = f"{type(error).__name__}: {error}"
    while seen is not None:  # from the kernel to the called function with the error
        node: Any = getattr(seen, "node", None)
        if node is None:
            message = message or str(seen)
        else:
            message = _WRAPPED.sub(r"\2", getattr(seen, "error_message", None) or "") or message
            begin = _begin_of(getattr(seen, "src", None), names)
            line = begin + node.lineno - 1 if begin and hasattr(node, "lineno") else line
        seen = seen.__cause__
    return message or type(error).__name__, line


def _assembler_message(error: str, text: str, path: str) -> tuple[str, int]:
    match = re.search(r"^ptxas\S* (?:\S+, line (\d+); )?(?:fatal|error)\s*: (?:\(C\d+\) )?(.*)$", error, re.MULTILINE)
    message = match[2] if match else error.strip().partition("\n")[0]
    at = re.search(r" (?:at|in) line (\d+)", message)
    number = (match and match[1]) or (at and at[1])
    return message.replace(at[0], "") if at else message, line_of_ptx(text, int(number), path) if number else 0


def line_of_ptx(text: str, number: int, path: str) -> int:
    """Return the line of the Python file for line `number` of a PTX text, 0 for none."""
    above = "\n".join(text.splitlines()[:number])
    files = "\n".join(line for line in text.splitlines() if line.startswith("\t.file\t"))
    lines = listings.ptx(f"{files}\n{above}", path).lines
    return lines[-1] if lines else 0


def definition_line(text: str, name: str) -> int:
    """Return the line of `def name` at the top level of the text, 0 if there is none."""
    match = re.search(rf"^def {re.escape(name)}\b", text, re.MULTILINE)
    return text.count("\n", 0, match.start()) + 1 if match else 0


def span_of(text: str, file: str, line: int) -> Span | None:
    """Return the span of the code on a line of the text, or None if there is no such line."""
    rows = text.split("\n")
    if not 0 < line <= len(rows):
        return None
    row = rows[line - 1].rstrip()
    start = len(row) - len(row.lstrip())
    return Span(file, line, len(row[:start].encode()), line, len(row.encode()))


def _begin_of(source: str | None, names: dict[str, Any]) -> int:
    """Return the first line of a kernel of the file, found by its source in Triton."""
    for value in names.values():
        while value is not None and not hasattr(value, "src"):
            value = getattr(value, "fn", None)
        if value is not None and source is not None and value.src == source:
            rows, begin = inspect.getsourcelines(value.fn)
            return begin + next((i for i, row in enumerate(rows) if row.lstrip().startswith("def ")), 0)
    return 0


@contextlib.contextmanager
def _quiet_triton(directory: str, path: str) -> Generator[_Recorder]:
    """Set Triton to its defaults, independent of the environment. Keep its files in `directory`, and its output."""
    knobs: Any = importlib.import_module("triton.knobs")
    recorder = _Recorder(path)
    kept_directory, tempfile.tempdir = tempfile.tempdir, directory
    with contextlib.ExitStack() as stack:
        stack.callback(setattr, tempfile, "tempdir", kept_directory)
        for group in (knobs.runtime, knobs.compilation, knobs.cache, knobs.nvidia):
            stack.enter_context(group.scope())
        knobs.cache.dir = directory
        knobs.runtime.interpret = False
        knobs.runtime.override_arch = None
        knobs.runtime.add_stages_inspection_hook = recorder.watch
        knobs.compilation.override = False
        knobs.compilation.dump_ir = False
        knobs.compilation.disable_line_info = False
        knobs.compilation.use_ir_loc = None
        knobs.nvidia.disable_ptxas_opt = False
        knobs.nvidia.dump_ptxas_log = True
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        printed = stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        diagnostics = stack.enter_context(_stderr_to_file())
        recorder.printed = lambda: printed.getvalue() + diagnostics()
        yield recorder


@contextlib.contextmanager
def _stderr_to_file() -> Generator[Callable[[], str]]:
    """Capture standard error at its file descriptor. Yield a function that returns the output so far."""
    with tempfile.TemporaryFile("a+b") as captured:
        original = os.dup(2)
        os.dup2(captured.fileno(), 2)

        def read() -> str:
            captured.seek(0)
            return captured.read().decode(errors="replace")

        try:
            yield read
        finally:
            os.dup2(original, 2)
            os.close(original)


_WRAPPED = re.compile(r"^\w+Error\((['\"])(.*)\1\)$", re.DOTALL)
