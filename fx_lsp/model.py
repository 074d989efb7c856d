"""Plain data that crosses fx-lsp's boundaries. Standard library only.

Lines count from 1; columns count UTF-8 bytes from 0, as CPython's `ast` and `co_positions` do.
A *spec* is a tensor as FX prints it: `f32[8, 128]`, `i64[2]@cuda`, `f32[8, 128](1, 8)` with strides.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from urllib.parse import quote, unquote


@dataclass(frozen=True)
class Span:
    """Locate a range of source text in one file; `end_col` is exclusive."""

    file: str
    line: int
    col: int
    end_line: int
    end_col: int

    def contains(self, other: Span) -> bool:
        """Return whether `other` lies inside this span (equal spans contain each other)."""
        return (
            self.file == other.file
            and (self.line, self.col) <= (other.line, other.col)
            and (other.end_line, other.end_col) <= (self.end_line, self.end_col)
        )


TargetKind = Literal["function", "module", "method", "graph", "step", "script"]


Compiled = Literal["", "parts", "whole"]
"""The use of `torch.compile` on a target in its file: "" for none, "whole" with `fullgraph=True`, else "parts"."""


@dataclass(frozen=True)
class Target:
    """Describe something that can be traced: a function, an `nn.Module` class, or a method of a class.

    A "graph" is a function that builds a torch.fx graph, or a name of the module that holds one; it is shown unchanged.
    A "step" is the body of a loop over batches, up to its loss, or a function that calls `backward`. A "script" is a
    file that runs as a program: it shows the errors of the whole run, and the graphs of top-level code that computes
    with tensors, outside of steps.

    `name` is the qualified name (`f`, `Block`, `Block.extra`); `name_span` covers the identifier that hovers and lenses
    attach to; `span` covers the whole definition with its decorators. `evident` is True if the text shows that it
    handles tensors; another target is dropped if its run reaches no PyTorch operation. `compiled` is set if its file
    passes it to `torch.compile`.
    """

    file: str
    name: str
    kind: TargetKind
    name_span: Span
    span: Span
    evident: bool = True
    compiled: Compiled = ""

    @property
    def id(self) -> str:
        """Return `path/to/file.py::name`, as in pytest."""
        return f"{self.file}::{self.name}"


InputSource = Literal["comment", "settings", "recorded", "convention", "annotation", "default", "call site", "search"]


@dataclass(frozen=True)
class InputSpec:
    """Describe one argument of the traced call.

    `name` is the parameter (`x`, `init.dim` for a constructor argument, `position_embeddings[0]` for a tensor inside a
    container); `spec` is a tensor spec or the `repr` of another value; `source` is its origin and `detail` adds to it
    ("line 12", "repaired from a shape error"), or is "". `guessed` is True if the value is not written down and no
    program passes it. `requires_grad` is that of a floating-point tensor, as it is traced; None for anything else.
    """

    name: str
    spec: str
    source: InputSource
    detail: str = ""
    guessed: bool = False
    requires_grad: bool | None = None

    @property
    def is_guess(self) -> bool:
        """Return True if the search chose it, because nothing says what it is."""
        return self.source == "search"


GradMode = Literal["grad", "no_grad", "inference_mode"]


@dataclass(frozen=True)
class CallContext:
    """Describe the state of PyTorch where a target is called: what its graphs depend on besides the arguments.

    `autocast` has the types of devices under autocast, each with the short name of its dtype; `dtype` and `device` are
    the defaults of new tensors; `sdpa` names the allowed backends of `scaled_dot_product_attention`, or is empty for
    all; `precision` is that of float32 matrix products. `inside` are the transformations around the call, the outermost
    first: "vmap", "grad", "checkpoint". `place` is where the program calls it ("train.py:14"), "" if none does.
    """

    grad: GradMode = "grad"
    autocast: tuple[tuple[str, str], ...] = ()
    dtype: str = "f32"
    device: str = "cpu"
    sdpa: tuple[str, ...] = ()
    deterministic: bool = False
    precision: str = "highest"
    inside: tuple[str, ...] = ()
    place: str = ""

    @property
    def written(self) -> tuple[str, ...]:
        """Return the settings other than PyTorch's defaults, as in a `# fx:` comment: `no_grad()`."""
        backends = ", ".join(f'"{name}"' for name in self.sdpa)
        settings = (
            (self.grad != "grad", f"{self.grad}()"),
            *((True, f'autocast("{device}", {dtype})') for device, dtype in self.autocast),
            (self.dtype != "f32", f"set_default_dtype({self.dtype})"),
            (self.device != "cpu", f'set_default_device("{self.device}")'),
            (bool(self.sdpa), f"sdpa_kernel({backends})"),
            (self.deterministic, "use_deterministic_algorithms()"),
            (self.precision != "highest", f'set_float32_matmul_precision("{self.precision}")'),
        )
        return tuple(text for differs, text in settings if differs)

    @property
    def shown(self) -> str:
        """Return it for the user: `vmap, no_grad() (train.py:14)`; "" where all is as PyTorch's defaults are."""
        text = ", ".join((*self.inside, *self.written))
        return f"{text} ({self.place})" if text and self.place else text


PLAIN_CONTEXT = CallContext()
"""The context where nothing is known of a call: PyTorch's defaults."""

NodeOp = Literal["placeholder", "call_function", "call_module", "call_method", "get_attr", "output"]


@dataclass(frozen=True)
class Node:
    """Describe one FX node. Names are readable (`x`, `grad_w`), and the same in every stage of a trace.

    `args` are the rendered arguments, keyword arguments as `dim=-1`; `inputs` and `users` are names of nodes in the
    same stage; `spec` is None for results that are not tensors, and `(f32[2], i64[2])` for several. `spans` are the
    source expressions that the node came from, innermost first, followed by their call sites. `flops` are its
    floating-point operations as PyTorch counts them, `moved_bytes` the bytes that it reads and writes, `sent_bytes`
    those that a process of a group sends in a collective. `module` is the path of the submodule that it runs in, or
    that owns it ("layers.0.attn"), "" for the target itself.
    """

    name: str
    op: NodeOp
    target: str
    args: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    spec: str | None = None
    spans: tuple[Span, ...] = ()
    comment: str = ""
    flops: int = 0
    moved_bytes: int = 0
    module: str = ""
    sent_bytes: int = 0

    @property
    def span(self) -> Span | None:
        """Return the innermost source expression, or None if PyTorch recorded none."""
        return self.spans[0] if self.spans else None

    @property
    def computes(self) -> bool:
        """Return True if the node is an operation: not an input, not an output, and not `getitem` of several
        results.
        """
        return self.op.startswith("call_") and self.target != "operator.getitem"


StageName = str
"""`torch`, `joint`, `decomposed`, `forward`, `backward`, `inference`, and one per pass (`joint:remove_noop_ops`)."""


@dataclass(frozen=True)
class Stage:
    """Hold one graph of the pipeline, in execution order; the last node is the output.

    A stage that is not a graph (generated code, a table) has `text`. `origins` has a number for each line of it, 0 for
    none: the number of a node, from 1, or, without nodes, of a line of the text that this one was compiled from.
    `kernels` has a number for each line, if the text lists kernels: that of its kernel, from 1, 0 for none.
    """

    name: StageName
    nodes: tuple[Node, ...] = ()
    text: str = ""
    origins: tuple[int, ...] = ()
    kernels: tuple[int, ...] = ()


@dataclass(frozen=True)
class Change:
    """Count the nodes that a pass added, removed and changed; `moved` nodes only changed their place."""

    added: int = 0
    removed: int = 0
    changed: int = 0
    moved: int = 0

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.moved)


@dataclass(frozen=True)
class StageInfo:
    """Describe a stage without its nodes: `ops` counts call nodes, `nodes` all of them.

    `title` is a readable name of the step that made it. A stage after a pass refers to its input stage, `before`, and
    has the `change`; if the pass changed nothing, the graph is that of `before`. `note` is a sentence about the step.
    """

    name: StageName
    ops: int
    nodes: int
    title: str = ""
    before: StageName = ""
    change: Change | None = None
    note: str = ""


SavedKind = Literal["input", "parameter", "buffer", "activation"]


WhySaved = Literal["", "policy", "random", "product", "unlisted", "reduction", "cut"]
"""Why the partitioner saves a value: a checkpoint's policy, or it does not recompute random values, matrix products and
the like, operations outside of its list, or reductions; "cut": it may recompute the value, and saving costs less.
"" for inputs, parameters and buffers.
"""


WhyNotFused = Literal[
    "call", "template", "sizes", "reductions", "row", "ends", "unrelated", "between", "stored", "order", "inductor"
]
"""Why two kernels are not one: one of them is a call of PyTorch, or of a template; they run over other sizes; their
reductions run over other dimensions; the dimension is too long for one program; a reduction has to end before the rest
starts; they share no tensor; a kernel between them computes what the later one needs; a value has to be stored first;
others have to read before it is overwritten. "inductor": Inductor says why, in its own words, or does not.
"""


@dataclass(frozen=True)
class Saved:
    """Describe a value saved for backward. `bytes` is its storage; `used_by` names its backward nodes.

    A named size counts in `bytes` as the number in a note of the trace; a data-dependent size counts as zero.
    """

    name: str
    spec: str
    bytes: int
    span: Span | None
    kind: SavedKind = "activation"
    used_by: tuple[str, ...] = ()
    why: WhySaved = ""


@dataclass(frozen=True)
class ObservedValue:
    """Hold the value of an expression or a variable during the run.

    `name` is the variable that the statement at `span` bound, "return" for a returned value, or "" for the value of the
    expression at `span`. `spec` is `f32[8, 128]`, `(f32[2], f32[2])` for a tuple, or `4` for an integer; `varies`
    is true if later iterations of a loop had another spec.
    """

    span: Span
    name: str
    spec: str
    varies: bool = False


@dataclass(frozen=True)
class Operand:
    """Hold a part of a condition as text, with its value when the condition was evaluated: `targets`, `None`."""

    text: str
    value: str


UnreachedReason = Literal[
    "condition",  # a condition had the value `truth` at every evaluation
    "empty",  # a loop had nothing to iterate over
    "subject",  # no subject of a `match` equalled the case
    "left",  # an earlier statement left the block: a `return`, say
    "failed",  # an earlier statement raised
]


@dataclass(frozen=True)
class Unreached:
    """Describe statements of an executed function that were never reached, and the reason.

    `decider` is the expression that decided it: the condition, the iterable of a loop, the subject of a `match`. For
    "left", it is the condition of the statement that left, or None, and `exit` is that statement. `operands` are the
    parts of the decider whose values were observed and stayed the same. `variants` names those of the target that reach
    it.
    """

    span: Span
    reason: UnreachedReason
    decider: Span | None = None
    truth: bool = False
    operands: tuple[Operand, ...] = ()
    exit: Span | None = None
    variants: tuple[str, ...] = ()


@dataclass(frozen=True)
class TargetVariant:
    """Describe another way to call a target. An "argument" is one more of its arguments, an optional tensor called
    `name`, or another value of a flag: `balance=True`. A "call" is one that the program makes in another context
    ("line 14: eval()"), and "gradients" is the same call with a gradient for every input.

    `inputs` are all inputs of its run, empty if it was not tried; `values` are those of code that the target does not
    reach without the argument.
    """

    name: str
    inputs: tuple[InputSpec, ...] = ()
    values: tuple[ObservedValue, ...] = ()
    kind: Literal["argument", "call", "gradients"] = "argument"


@dataclass(frozen=True)
class NamedSizes:
    """Hold the names that the code has for the sizes of one tensor; "" for a size without a name.

    A "value" is the variable `name` at `span`, as in `ObservedValue`; an "operation" comes from the expression at
    `span`, and the tensor is its operand or result; an "input" is identified by its name alone. `fixed` are the
    expressions whose operations need the sizes to be these numbers, None for others; () without any.
    """

    kind: Literal["value", "operation", "input"]
    span: Span | None
    name: str
    sizes: tuple[int, ...]
    names: tuple[str, ...]
    fixed: tuple[Span | None, ...] = ()


@dataclass(frozen=True)
class ModuleInfo:
    """Describe a module of a target: its path ("" for the target itself), its class, and its own parameters, each
    counted at its first occurrence.
    """

    path: str
    kind: str
    parameters: int
    parameter_bytes: int


Severity = Literal["error", "warning", "information"]
ProblemSeverity = Literal[Severity, "hint"]
RuleSeverity = Literal[Severity, "off"]
"""The severity that a project sets for a code; "off" reports none of its problems."""


@dataclass(frozen=True)
class Related:
    """Locate another place that is related to a problem."""

    span: Span
    message: str


FindingCode = Literal[
    "all-pairs",  # two tensors broadcast to all pairs of their elements
    "changed-in-place",  # a value that backward reads is changed before
    "copy",  # a reshape copies, because the strides do not allow a view
    "graph-break",  # code that Dynamo does not trace
    "host-sync",  # the host waits for the device
    "loss",  # a loss gets probabilities for logits, or the like
    "no-effect",  # no effect: the tensor already has that dtype, device or shape
    "no-gradient",  # a parameter that no loss can train
    "one-element",  # a reduction over a single element
    "pytorch-warning",  # a warning of PyTorch itself
    "recompile",  # calls that `torch.compile` compiles again
    "training",  # an optimizer step that leaves parameters unchanged, or gradients of the step before
    "unregistered",  # a parameter that is not registered with its module
    "upcast",  # operands of several precisions, computed in the widest
    "wrong-gradient",  # `backward` raises, or returns a gradient that does not fit its argument
]


@dataclass(frozen=True)
class CapturedGraph:
    """Describe a graph that `torch.compile` captures next to a break: its number from 1, its operations, and the lines
    of the target's file that it came from, or None if it came from others.
    """

    number: int
    ops: int
    span: Span | None


@dataclass(frozen=True)
class Remark:
    """Hold a sentence for the user about a place in the code ("B becomes 16 here: …"), or without a place.

    `code` is the kind of mistake in code that runs; it is None for the trace's requirements on sizes and values. `page`
    is the URL of a PyTorch page on it, or "". `rests_on` names inputs that it depends on: if one of those was guessed,
    the remark is information only. `before` is the graph that a graph break ends, `after` the next one, None without
    one.
    """

    message: str
    span: Span | None
    severity: ProblemSeverity = "information"
    related: tuple[Related, ...] = ()
    code: FindingCode | None = None
    page: str = ""
    rests_on: Literal["", "dtypes", "inputs"] = ""
    before: CapturedGraph | None = None
    after: CapturedGraph | None = None


MemoryPart = Literal["parameters", "gradients", "optimizer", "saved", "temporary", "workspaces"]
MemoryPhase = Literal["forward", "backward", "optimizer"]


@dataclass(frozen=True)
class StepMemory:
    """Hold the parts, in bytes, of the peak of a training program's memory on its device: parameters and buffers,
    gradients, the state of optimizers, what forward leaves to backward, and the rest.

    The peak is in a `phase`, at `span`: in backward, that is the operation in forward. `device` is the device's type,
    "cpu" if the program uses no GPU; `batch` is the number of samples that it trains with at once, 0 if unknown.
    `phases` are the peaks of all phases, in the order of `MemoryPhase`; `reserved` is what the allocator of a GPU holds
    in the end, `flops` what two steps compute. `reduced` is the class of the modules that a reduction applies to.
    """

    parameters: int
    gradients: int
    optimizer: int
    saved: int
    temporary: int
    workspaces: int
    phase: MemoryPhase
    span: Span | None
    device: str = "cuda"
    batch: int = 0
    phases: tuple[int, ...] = ()
    reserved: int = 0
    flops: int = 0
    reduced: str = ""

    @property
    def peak(self) -> int:
        """Return the sum of all parts."""
        return self.parameters + self.gradients + self.optimizer + self.saved + self.temporary + self.workspaces


Reduction = Literal["checkpoint", "bfloat16", "fused"]
REDUCTIONS: tuple[Reduction, ...] = ("checkpoint", "bfloat16", "fused")
"""What reduces the memory of a training program: checkpoints of its repeated modules, autocast, fused optimizers."""


@dataclass(frozen=True)
class MemoryFit:
    """Hold the memory of a training program, that with a `larger` batch if one is known, and that with each reduction.

    `notes` are those of the run.
    """

    memory: StepMemory
    larger: StepMemory | None
    reduced: Mapping[Reduction, StepMemory]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trace:
    """Describe a traced target, without the nodes of its stages (those are loaded one at a time: `Stage`).

    `seconds` is the time of the worker, `capture_seconds` the processor time for the graphs alone; `torch` is the
    version; `notes` are sentences for the user ("the whole module was imported, because …"); `remarks` state the
    requirements on dynamic dimensions. An inference-only target has the single stage `inference`, and is `refused` if
    PyTorch cannot differentiate it. `unreached` is code of executed functions that did not run; `variants` are other
    ways to call the target; `named` are sizes with names in the code; `modules` are the target's module and its
    submodules, each after its parent; it is traced as if called in `context`. `memory` is that of a script.
    """

    target: str
    inputs: tuple[InputSpec, ...]
    stages: tuple[StageInfo, ...]
    saved: tuple[Saved, ...]
    values: tuple[ObservedValue, ...]
    outputs: tuple[str, ...]
    seconds: float
    torch: str
    notes: tuple[str, ...] = ()
    remarks: tuple[Remark, ...] = ()
    refused: bool = False
    unreached: tuple[Unreached, ...] = ()
    variants: tuple[TargetVariant, ...] = ()
    named: tuple[NamedSizes, ...] = ()
    modules: tuple[ModuleInfo, ...] = ()
    capture_seconds: float = 0.0
    context: CallContext = PLAIN_CONTEXT
    memory: StepMemory | None = None

    @property
    def activation_bytes(self) -> int:
        """Return the bytes of the activations saved for backward, without inputs and parameters, which exist anyway."""
        return sum(s.bytes for s in self.saved if s.kind == "activation")

    def info(self, stage: StageName) -> StageInfo | None:
        """Return the description of `stage`, or None if the target has no such stage."""
        return next((s for s in self.stages if s.name == stage), None)

    def kept(self, stage: StageName) -> StageName | None:
        """Return the stage with the graph of `stage`: an earlier one if its pass changed nothing. None without any."""
        info = self.info(stage)
        while info is not None and info.change is not None and not info.change:
            info = self.info(info.before)
        return None if info is None else info.name

    def ops(self, stage: StageName) -> int | None:
        """Return the number of operations in `stage`, or None if the target has no such stage."""
        info = self.info(stage)
        return None if info is None else info.ops


PassKind = Literal["function", "transformer", "rewrite", "manager", "matcher", "support"]


@dataclass(frozen=True)
class Pass:
    """Describe a definition that rewrites graphs or matches parts of them. `uses` of a "rewrite" of one pattern to
    another are the replacement and the filters.
    """

    file: str
    name: str
    kind: PassKind
    span: Span
    name_span: Span
    uses: tuple[str, ...] = ()


@dataclass(frozen=True)
class PassSource:
    """Describe a pass for the tracer; the other fields are those of a request."""

    found: Pass
    source: str
    sliced: str
    module: str
    package: str
    roots: tuple[str, ...]


Budgeted = Literal["graph-breaks", "recompilations", "host-syncs", "saved", "peak", "flops", "moved", "operations"]
"""The costs of a target that a project may limit: sizes in bytes, other costs as numbers."""
FailureKind = Literal[
    "syntax",  # the file does not parse
    "budget",  # a target costs more than the project allows
    "import",  # the target's imports or top-level statements raise
    "no-torch",  # the interpreter has no usable torch
    "interpreter",  # the interpreter cannot be started
    "construct",  # the module's constructor raises, or its arguments are unknown
    "inputs",  # the target runs with none of the tried inputs
    "comment",  # the `# fx:` comment is malformed
    "shape",  # sizes or ranks do not fit
    "dtype",  # dtypes do not fit
    "device",  # operands are on different devices
    "data-dependent",  # the code needs a value that fake tensors do not have
    "error",  # the target's own code raises something else
    "training",  # an optimizer step of a script does not do what it seems to; of a target, it is a finding
    "effect",  # the target writes files, starts programs or uses the network
    "exit",  # the target's code ends the process
    "timeout",  # over the time limit
    "memory",  # over the memory limit
    "crash",  # the process died by a signal
    "internal",  # fx-lsp's own code raised: its bug
    "unsupported",  # PyTorch cannot capture it, or there is nothing to capture
    "nothing",  # the target turned out not to be tensor code: it is not shown
]


@dataclass(frozen=True)
class NamedPlace:
    """Hold a place that a message names, with the `text` that names it in the message: "line 12"."""

    text: str
    span: Span


@dataclass(frozen=True)
class Failure:
    """Explain why a target cannot be traced: a value, shown at `span` in the user's file.

    `message` is one clear sentence, `hint` the remedy (may be empty). `severity` is "error" only if the code fails with
    any inputs, or with the inputs of its program; "warning" if no tried inputs work and the cause does not depend on
    them. `raised` is the place of the exception, if that is in another file than `span`. `output` is the tail of the
    output of the user's code. `partial` is the part that ran before the failure, if any: its values, and its operations
    as the stage `torch`. `missing_module` is the dotted name of the module that no folder has, if that is the cause.
    `mentions` are the places that the message names.
    """

    kind: FailureKind
    message: str
    span: Span | None = None
    hint: str = ""
    severity: Severity = "information"
    output: str = ""
    inputs: tuple[InputSpec, ...] = ()
    partial: Trace | None = None
    raised: Span | None = None
    missing_module: str = ""
    mentions: tuple[NamedPlace, ...] = ()


Outcome: TypeAlias = Trace | Failure


def known_trace(outcome: Outcome) -> Trace | None:
    """Return the trace of a target, or the part that ran before it failed, or None."""
    return outcome if isinstance(outcome, Trace) else outcome.partial


@dataclass(frozen=True)
class WrittenInputs:
    """Hold inputs of a target that are written down, in the language of the `# fx:` comment.

    `span` locates the text, or is None outside of the target's file; then `detail` names the place ("pyproject.toml").
    """

    text: str
    source: InputSource
    span: Span | None = None
    detail: str = ""


@dataclass(frozen=True)
class Caller:
    """Describe a definition of the same file that uses a target, to observe the arguments that it passes.

    `sliced` is the part of the file that it reaches, as in a request. `convention`: `get_inputs()` is meant for it.
    """

    name: str
    kind: TargetKind
    sliced: str
    convention: bool = False


@dataclass(frozen=True)
class Configuration:
    """Describe an object in the project that has names with values, at `line` of `file`, displayed as `shown`.

    `values` are a Python literal, with `...` for unwritten values; "" for a file (YAML, JSON, TOML) to read. A class of
    values is `name` of `module`; `arguments` are those of a command line.
    """

    file: str
    line: int
    shown: str
    values: str = ""
    module: str = ""
    name: str = ""
    arguments: bool = False


@dataclass(frozen=True)
class Fit:
    """Hold the configurations that a parameter may mean, the most plausible first; `reads` are the names read of it, as
    JSON.

    A constructor's parameter is `init.name`.
    """

    parameter: str
    reads: str
    configurations: tuple[Configuration, ...]


Work: TypeAlias = str
"""The work to do with a target besides tracing it, as in the query of a URI: `passes`, `passes&table=core`, or "".

With `variant=targets`, the work applies to that variant of the target; alone, the variant is only traced. Only
`read_work` and `write_work` know the syntax.
"""
MEMORY = "memory"
"""The work that measures the memory of a script that trains, with batches so many times as large: `memory=2`."""
REDUCED = "reduced"
"""How its memory is reduced in this measurement: `memory&reduced=checkpoint`."""
_VARIANT = "variant"
_PLAIN = "".join(chr(c) for c in range(32, 127) if chr(c) not in "%&")


def read_work(work: Work) -> dict[str, str]:
    """Return the parts of `work`, its own name first: `{"passes": "", "table": "core"}` for `passes&table=core`."""
    parts = (part.partition("=") for part in work.split("&") if part)
    return {name: unquote(value) for name, _, value in parts}


def write_work(parts: Mapping[str, str]) -> Work:
    """Return the work with these parts, as `read_work` reads it; separators in values are quoted."""
    return "&".join(f"{name}={quote(value, safe=_PLAIN)}" if value else name for name, value in parts.items())


def variant_work(name: str, work: Work = "") -> Work:
    """Return `work` on the variant `name` of a target, "" for the target itself."""
    return write_work({**read_work(work), _VARIANT: name}) if name else work


def variant_of(work: Work) -> str:
    """Return the variant of a target that `work` applies to, "" for the target itself."""
    return read_work(work).get(_VARIANT, "")


def plain_work(work: Work) -> Work:
    """Return `work` without the variant."""
    return write_work({name: value for name, value in read_work(work).items() if name != _VARIANT})


@dataclass(frozen=True)
class ProgramFile:
    """Describe a file of a project that has an effect when it runs, and the names that it runs under.

    With an `entry`, an expression, it is imported, and that is evaluated in it. A `source` runs in place of the file's
    own text, at its lines: the code in a document, tests without their decorators.
    """

    file: str
    module: str
    package: str
    entry: str = ""
    source: str = ""


@dataclass(frozen=True)
class WatchedFile:
    """Describe a file whose targets a world looks for: its text, and `targets`, by qualified name with their kinds.

    `is_program` is True if running it has an effect; then it is never imported as a whole.
    """

    file: str
    source: str
    module: str
    package: str
    targets: tuple[tuple[str, str], ...]
    is_program: bool


@dataclass(frozen=True)
class WorldRequest:
    """Hold the files whose targets a world looks for, and the unsaved texts of other files, by path.

    `roots` are added to `sys.path`, as those of a request.
    """

    files: tuple[WatchedFile, ...]
    roots: tuple[str, ...]
    overlays: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class TraceRequest:
    """Describe a request to a tracer process.

    `source` is the whole (unsaved) text; `sliced` is the same text with every line blanked that the target does not
    reach. `module` and `package` are the dotted `__name__` and `__package__` to run it under; `roots` are added to
    `sys.path`; `overlays` are unsaved texts of other files, by absolute path.

    `given` are written inputs, those of highest priority first; `previous` are the inputs of an earlier text of the
    target, where a search may begin; `callers` use the target; `seconds` bounds the search. `work`
    names the wanted stages, `passes` are the user's passes for it; `evident` and `compiled` are as in `Target`. `step`
    is the first line of the loop or function of a step, or 0. `programs` may call the target, and `bound` are the names
    that its file has to bind for it. With a `world` the tracer runs these programs itself before it traces, because no
    process is parked for the target.
    """

    file: str
    name: str
    kind: TargetKind
    source: str
    sliced: str
    module: str
    package: str
    roots: tuple[str, ...]
    given: tuple[WrittenInputs, ...] = ()
    previous: tuple[InputSpec, ...] = ()
    callers: tuple[Caller, ...] = ()
    overlays: dict[str, str] = field(default_factory=dict[str, str])
    seconds: float = 5.0
    work: Work = ""
    passes: tuple[PassSource, ...] = ()
    evident: bool = True
    step: int = 0
    fits: tuple[Fit, ...] = ()
    compiled: Compiled = ""
    programs: tuple[ProgramFile, ...] = ()
    bound: tuple[str, ...] = ()
    world: WorldRequest | None = None

    @property
    def is_asked(self) -> bool:
        """Return True if the author of the code wants the target traced: its inputs are written down."""
        return any(written.source in ("comment", "settings") for written in self.given)

    @property
    def compares_calls(self) -> bool:
        """Return True if the answer depends on all calls of the target in a program."""
        parts = read_work(self.work)
        return "recompiles" in parts or [*parts] == [_VARIANT] or bool(self.compiled and not self.work)

    @property
    def is_of_module(self) -> bool:
        """Return True if the target is taken from its module once that has run; other kinds run by themselves."""
        return self.kind in ("function", "method", "module", "step")


_RAN = "::ran "
"""Separator between a file and the names of executed functions in a dependency."""


def ran(file: str, functions: Iterable[str]) -> str:
    """Return the dependency on the text of a file except for the bodies of functions that have not run."""
    return f"{file}{_RAN}{','.join(sorted(functions))}"


def file_that_ran(dependency: str) -> tuple[str, frozenset[str]] | None:
    """Return the file and its executed functions for a dependency that `ran` built; None for any other."""
    file, separator, names = dependency.partition(_RAN)
    return (file, frozenset(names.split(","))) if separator else None


_VARIABLE = "$"
"""The start of a dependency on an environment variable."""


def variable_asked(name: str) -> str:
    """Return the dependency on the value of an environment variable."""
    return _VARIABLE + name


def asked_variable(dependency: str) -> str | None:
    """Return the environment variable of a dependency that `variable_asked` built; None for any other."""
    return dependency.removeprefix(_VARIABLE) if dependency.startswith(_VARIABLE) else None


def folder_listed(folder: str) -> str:
    """Return the dependency on the names in a folder."""
    return folder.rstrip(os.sep) + os.sep


def is_listing(dependency: str) -> bool:
    """Return True for a dependency that `folder_listed` built."""
    return dependency.endswith(os.sep)


@dataclass(frozen=True)
class TraceReply:
    """Hold a tracer's answer: the outcome, its encoded stages, and its dependencies.

    `stages` maps a stage's name to `wire.encode_stage` bytes. `dependencies` are absolute paths of other files whose
    text the answer depends on, `file::name` if it depends on the calls of the target in its own file, or strings from
    `ran`, `variable_asked` and `folder_listed`; `packages` are the dotted names of imported installed modules, which a
    zygote may import beforehand. A reply that is not `final` is correct, and a more complete one follows. `starved` are
    the seconds in which its process waited for a processor, or None if the system does not tell.
    """

    outcome: Outcome
    stages: dict[StageName, bytes] = field(default_factory=dict[str, bytes])
    dependencies: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    final: bool = True
    starved: float | None = field(default=None, compare=False)
