"""Convert exceptions of the user's code to failures: one sentence, on the expression that caused it."""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import re
import sys
from dataclasses import replace
from importlib.util import find_spec

import torch
import torch.overrides
from torch._subclasses.functional_tensor import FunctionalTensor

from fx_lsp.messages.exceptions import (
    EXITS,
    FIXES,
    GUESSED_INPUTS,
    HAS_EFFECT,
    NEEDS_VALUE,
    NEEDS_VALUE_FOR,
    NEEDS_VALUE_OF_OPERATION,
    NOT_ALLOWED_FILE,
    NOT_ON_FAKE_TENSORS,
    OUT_OF_MEMORY,
    RAISED_ELSEWHERE,
    READS_FILE,
    READS_STANDARD_INPUT,
    STARTS_PROGRAM,
    WHILE_IMPORTED,
)
from fx_lsp.messages.places import line_of, mention
from fx_lsp.messages.targets import PACKAGE_MISSING, PACKAGE_RAISES, SUBMODULE_MISSING
from fx_lsp.model import Failure, FailureKind, InputSpec, NamedPlace, Severity, Span
from fx_lsp.sandbox.limits import is_out_of_memory
from fx_lsp.specs import Comment, names_used, parse_comment
from fx_lsp.tracer.compat import DATA_DEPENDENT, FakeTensor
from fx_lsp.tracer.failures.data_dependent import explain
from fx_lsp.tracer.failures.fake_kernels import is_internal_to_fakes, missing_kernel, runs_only_on_real_tensors
from fx_lsp.tracer.program.absences import AbsentError
from fx_lsp.tracer.program.effects import EffectBlocked, ProgramBlocked, blocked_effect
from fx_lsp.tracer.program.partial_imports import PackageRaised
from fx_lsp.tracer.pytorch_texts import OF_DEVICES, OF_DTYPES, OF_MISSING_VALUES, OF_SHAPES, OPERATION, PLAINER
from fx_lsp.tracer.run.callables import Unfinished
from fx_lsp.tracer.run.observation import Run
from fx_lsp.tracer.run.tensors import describe
from fx_lsp.tracer.run.torch_calls import FailedCall
from fx_lsp.tracer.source.expressions import expression
from fx_lsp.tracer.source.provenance import Sources


def failure_of(
    error: BaseException, sources: Sources, failed: FailedCall | None, lines: list[str], severity: Severity
) -> Failure:
    """Return the failure for an exception that the target raised while it ran."""
    chain = sources.traceback_chain(error.__traceback__)
    inside = [s for s in chain if s.file == sources.file]
    span = inside[0] if inside else (chain[0] if chain else None)
    kind = kind_of(error, failed)
    message = sentence(error)
    if failed is not None:
        message += _about_operands(failed, span, lines, kind)
    raised = chain[0] if chain and span is not None and chain[0].file != span.file else None
    if raised is not None:
        message = RAISED_ELSEWHERE.message(error=message, file=raised.file, line=raised.line)
    if not is_wrong(error, failed):
        severity = "information"
    hint = "" if severity == "error" else FIXES.get(kind, "")
    if (lacks := missing_kernel(error)) is not None:
        message, hint = lacks.message, lacks.hint
    if kind == "data-dependent" and span is not None:
        shown = lines if span.file == sources.file else list(map(str.rstrip, linecache.getlines(span.file)))
        if (need := explain(_operation(error), span, shown)) is not None:
            message, hint = NEEDS_VALUE_FOR.message(need=need.message), need.hint
    failure = Failure(kind, message, span, hint, severity, raised=raised, missing_module=_missing_module(error))
    return replace(failure, mentions=_mentions(failed, message))


def showing_inputs(failure: Failure, inputs: tuple[InputSpec, ...]) -> Failure:
    """Return the failure of a call with its inputs, and the advice to write guessed ones down if they may matter."""
    may_matter = failure.severity != "error" and failure.kind in ("shape", "dtype", "device", "error", "inputs")
    is_guessed = may_matter and any(item.is_guess for item in inputs)
    return replace(failure, inputs=inputs, hint=comment_hint(inputs) if is_guessed else failure.hint)


_NOT_WRONG = frozenset({"effect", "unsupported", "exit", "memory", "data-dependent", "import"})
"""Kinds of failures that correct code may have as well, so they are not errors."""


def is_wrong(error: BaseException, failed: FailedCall | None = None) -> bool:
    """Return True if the exception is due to the code, and not to the machine, files or missing values."""
    return kind_of(error, failed) not in _NOT_WRONG and not isinstance(error, (OSError, EOFError))


def kind_of(error: BaseException, failed: FailedCall | None = None) -> FailureKind:
    """Return the kind of failure of an exception."""
    text = str(error)
    if blocked_effect(error) is not None:
        return "effect"
    if isinstance(error, Unfinished) or runs_only_on_real_tensors(error):
        return "unsupported"
    if isinstance(error, SystemExit):
        return "exit"
    if is_out_of_memory(error):
        return "memory"
    if needs_value(error) or "data-dependent" in text or "on FakeTensor" in text:
        return "data-dependent"
    if _is_of_import(error):
        return "import"
    if isinstance(error, RuntimeError) and OF_DEVICES.search(text):
        return "device"
    if isinstance(error, (RuntimeError, ValueError, IndexError, TypeError)):
        if isinstance(error, (RuntimeError, TypeError)) and OF_DTYPES.search(text) and "shape" not in text:
            return "dtype"
        if (failed is not None or not isinstance(error, TypeError)) and OF_SHAPES.search(text):
            return "shape"
    return "error"


def _missing_module(error: BaseException) -> str:
    """Return the name of the module whose absence is the cause of an exception, or ""."""
    cause = error.__cause__ if isinstance(error, AbsentError) else error
    return (isinstance(cause, ModuleNotFoundError) and cause.name) or ""


def _is_of_import(error: BaseException) -> bool:
    """Return True if a package is missing, at its import or at its use."""
    return isinstance(error.__cause__ if isinstance(error, AbsentError) else error, ImportError)


def needs_value(error: BaseException) -> bool:
    """Return True if code asked a fake tensor for its values."""
    return isinstance(error, DATA_DEPENDENT) or str(error).startswith(OF_MISSING_VALUES)


def is_of_made_up(run: Run, sources: Sources) -> bool:
    """Return True if made-up numbers may have ended a run, and not a torch call."""
    if run.made_up is None or not isinstance(run.error, _OF_VALUES) or needs_value(run.error):
        return False
    chain = sources.traceback_chain(run.error.__traceback__)
    return run.failed is None or run.failed.chain[:1] != chain[:1]


_OF_VALUES = (ArithmeticError, AssertionError, LookupError, RuntimeError, ValueError, SystemExit)
"""Exceptions that code raises because of its input values."""


def sentence(error: BaseException) -> str:
    """Return the message of an exception in one line."""
    if isinstance(error, SystemExit):
        return EXITS.message(code=error.code)
    if isinstance(error, (Unfinished, AbsentError)):
        return str(error)
    if isinstance(error, MemoryError):
        return OUT_OF_MEMORY.message()
    if isinstance(error, OSError) and (about := _about_the_system(blocked_effect(error) or error)):
        return about
    if is_internal_to_fakes(error):
        return NOT_ON_FAKE_TENSORS.message()
    if isinstance(error, EOFError):
        return READS_STANDARD_INPUT.message()
    if needs_value(error):
        operation = _operation(error)
        return NEEDS_VALUE_OF_OPERATION.message(operation=operation) if operation else NEEDS_VALUE.message()
    text = str(error).strip().splitlines()[0] if str(error).strip() else ""
    for kind in (FakeTensor, FunctionalTensor):
        text = text.replace(kind.__name__, "Tensor")
    for pattern, plain in PLAINER:
        if match := re.search(pattern, text):
            return match.expand(plain)
    if isinstance(error, (RuntimeError, ValueError, IndexError)) and text:
        return text.rstrip(".")
    return f"{type(error).__name__}: {text}".rstrip(": .")


def _about_the_system(error: OSError) -> str:
    """Return the message for what the sandbox has stopped, and for a file that cannot be read; "" for another error."""
    if isinstance(error, ProgramBlocked):
        return STARTS_PROGRAM.message(program=error.program)
    if isinstance(error, EffectBlocked):
        return HAS_EFFECT.message(effect=error.what)
    if not isinstance(error, (FileNotFoundError, IsADirectoryError, PermissionError)) or error.filename is None:
        return ""
    if isinstance(error, PermissionError) and isinstance(error.filename, str) and os.access(error.filename, os.R_OK):
        return NOT_ALLOWED_FILE.message(file=error.filename)
    return READS_FILE.message(file=error.filename, error=error.strerror)


def _operation(error: BaseException) -> str:
    operation = OPERATION.search(str(error))
    return operation[0] if operation else ""


def _mentions(failed: FailedCall | None, message: str) -> tuple[NamedPlace, ...]:
    """Return the places that a message on a call mentions."""
    if failed is None or failed.pairing is None:
        return ()
    paired = mention(failed.pairing.span)
    return (paired,) if paired.text in message else ()


def _about_operands(failed: FailedCall, span: Span | None, lines: list[str], kind: FailureKind) -> str:
    """Return the end of a message on the operands of a call: their specs, and the place where two of them were
    paired.
    """
    operands = _operands(failed, span, lines) if kind in ("shape", "dtype", "device", "error") else ""
    paired = f"; {line_of(failed.pairing.span)}: {failed.pairing.message}" if failed.pairing is not None else ""
    return (f" ({operands})" if operands else "") + paired


def _operands(failed: FailedCall, span: Span | None, lines: list[str]) -> str:
    tensors = [(a, describe(a)) for a in (*failed.args, *failed.kwargs.values())]
    specs = [s for _, s in tensors if s is not None]
    names = _operand_names(span, lines, failed) if failed.chain and span == failed.chain[0] else []
    if len(names) != len(specs):
        names = _parameter_names(failed)
    if len(names) == len(specs):
        return ", ".join(f"{n}: {s}" for n, s in zip(names, specs, strict=True))
    return ", ".join(specs)


def _operand_names(span: Span | None, lines: list[str], failed: FailedCall) -> list[str]:
    """Return the source text of each tensor operand, if the expression shows them plainly."""
    node = expression(span, lines)
    if isinstance(node, ast.Subscript):
        return [ast.unparse(node.value)]
    if isinstance(node, ast.BinOp):
        return [ast.unparse(node.left), ast.unparse(node.right)] if _tensors(failed) == 2 else []
    if isinstance(node, ast.Call):
        operands: list[ast.expr] = [*node.args, *(k.value for k in node.keywords)]
        if isinstance(node.func, ast.Attribute) and len(failed.args) + len(failed.kwargs) == len(operands) + 1:
            operands.insert(0, node.func.value)
        values = [*failed.args, *failed.kwargs.values()]
        if len(operands) == len(values):
            return [ast.unparse(o) for o, v in zip(operands, values, strict=True) if describe(v) is not None]
    return []


def _parameter_names(failed: FailedCall) -> list[str]:
    """Return torch's names for the tensor operands of the failing function."""
    stand_in = torch.overrides.get_testing_overrides().get(failed.func)
    if stand_in is None:
        return []
    try:
        bound = inspect.signature(stand_in).bind(*failed.args, **failed.kwargs)
    except (TypeError, ValueError):
        return []
    return [name for name, value in bound.arguments.items() if describe(value) is not None]


def _tensors(failed: FailedCall) -> int:
    return sum(isinstance(a, torch.Tensor) for a in (*failed.args, *failed.kwargs.values()))


def comment_hint(inputs: tuple[InputSpec, ...]) -> str:
    """Return the advice to write guessed inputs down, with the comment to write; "" without guesses."""
    comment = _comment(inputs)
    return GUESSED_INPUTS.format(comment=comment) if comment else ""


def _comment(inputs: tuple[InputSpec, ...]) -> str:
    """Return inputs as a `# fx:` comment, with `…` for values without a notation; defaults are left out."""
    groups: dict[str, list[InputSpec]] = {}
    for item in inputs:
        if item.source != "default" and not item.name.endswith(")"):
            prefix = _INIT if item.name.startswith(_INIT) else ""
            root = prefix + re.split(r"[\[.]", item.name[len(prefix) :], maxsplit=1)[0]
            groups.setdefault(root, []).append(item)
    values = {root: _argument_text(root, items) for root, items in groups.items()}
    init = ", ".join(f"{root[len(_INIT) :]}={value}" for root, value in values.items() if root.startswith(_INIT))
    called = [f"{root}={value}" for root, value in values.items() if not root.startswith(_INIT)]
    return ", ".join([*([f"init({init})"] if init else []), *called])


_INIT = "init."


def _argument_text(root: str, items: list[InputSpec]) -> str:
    """Return one argument as in a comment: a spec or a literal, or a tuple of them."""
    specs = [item.spec if _is_literal(item.spec) else "…" for item in items]
    if [item.name for item in items] == [root]:
        return specs[0]
    if [item.name for item in items] != [f"{root}[{i}]" for i in range(len(items))]:
        return "…"
    return f"({', '.join(specs)}{',' if len(specs) == 1 else ''})"


def _is_literal(spec: str) -> bool:
    parsed = parse_comment(f"value={spec}")
    return isinstance(parsed, Comment) and list(parsed.args) == ["value"] and names_used(parsed) <= {"torch"}


def load_failure(error: BaseException, sources: Sources) -> Failure:
    """Return the failure for an exception raised while the user's module was imported."""
    chain = sources.traceback_chain(error.__traceback__)
    inside = [s for s in chain if s.file == sources.file]
    span = inside[0] if inside else None
    if isinstance(error, SyntaxError) and error.filename:
        span = span or Span(error.filename, error.lineno or 1, 0, error.lineno or 1, 0)
    if isinstance(error, PackageRaised):
        return PACKAGE_RAISES.failure(span, error=error)
    if missing := _missing_module(error):
        package = missing.partition(".")[0]
        if package != missing and (package in sys.modules or find_spec(package) is not None):
            failure = SUBMODULE_MISSING.failure(span, package=package, module=missing)
        else:
            failure = PACKAGE_MISSING.failure(span, package=missing)
        return replace(failure, missing_module=missing)
    kind = kind_of(error)
    kind = kind if kind in ("memory", "exit", "effect") else "import"
    failure = WHILE_IMPORTED.failure(span, hint=FIXES.get(kind, ""), error=sentence(error))
    return replace(failure, kind=kind)
