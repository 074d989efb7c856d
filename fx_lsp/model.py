"""Plain data that crosses fx-lsp's boundaries. Standard library only.

Lines count from 1; columns count UTF-8 bytes from 0, as CPython's `ast` and `co_positions` do.
A *spec* is a tensor as FX prints it: `f32[8, 128]`, `i64[2]@cuda`, `f32[8, 128](1, 8)` with strides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from urllib.parse import quote, unquote


@dataclass(frozen=True)
class Span:
    """A range of source text in one file; `end_col` is exclusive."""

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
"""Whether a file hands one of its targets to `torch.compile`, and whether with `fullgraph=True`."""


@dataclass(frozen=True)
class Target:
    """Something that can be traced: a function, an `nn.Module` class, or a method of a class. A "graph" is a function
    that builds one of torch.fx, or a name of the module that holds one: it is shown as it is. A "step" is the body of a
    loop over batches, up to its loss, or a function that calls `backward`. A "script" is a file that runs as a program:
    it has no graph, and shows only where it is wrong.

    `name` is the qualified name (`f`, `Block`, `Block.extra`); `name_span` covers the identifier that
    hovers and lenses attach to; `span` covers the whole definition with its decorators. `evident`: its text shows that
    it handles tensors; of another, a run that comes to no operation of PyTorch shows that it does not. `compiled` says
    whether its file hands it to `torch.compile`.
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
        """`path/to/file.py::name`, as pytest names things."""
        return f"{self.file}::{self.name}"


InputSource = Literal["comment", "settings", "recorded", "convention", "annotation", "default", "call site", "search"]


@dataclass(frozen=True)
class InputSpec:
    """One argument that a target was traced with.

    `name` is the parameter (`x`, `init.dim` for a constructor argument, `position_embeddings[0]` for a
    tensor inside a container); `spec` a tensor spec or the `repr` of another value; `source` says where it
    came from and `detail` adds to it ("line 12", "repaired from a shape error"), or is "". `guessed`: nobody wrote it
    down, and no program passes it.
    """

    name: str
    spec: str
    source: InputSource
    detail: str = ""
    guessed: bool = False


NodeOp = Literal["placeholder", "call_function", "call_module", "call_method", "get_attr", "output"]


@dataclass(frozen=True)
class Node:
    """One FX node. Names are readable ones (`x`, `grad_w`), the same in every stage of a trace.

    `args` are the rendered arguments, keyword arguments as `dim=-1`; `inputs` and `users` are names of nodes
    in the same stage; `spec` is None for results that are no tensor, and `(f32[2], i64[2])` for several.
    `spans` are the source expressions that the node came from, innermost first, callers after it. `flops` are its
    floating-point operations as PyTorch counts them, `moved_bytes` what it reads and writes. `module` is the path of
    the submodule that it runs in, or that holds it ("layers.0.attn"), "" for the target itself.
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

    @property
    def span(self) -> Span | None:
        """Return the innermost source expression, or None where PyTorch kept none."""
        return self.spans[0] if self.spans else None

    @property
    def computes(self) -> bool:
        """Return whether it counts as an operation: no input, no output, and not the pick of one of several results."""
        return self.op.startswith("call_") and self.target != "operator.getitem"


StageName = str
"""`torch`, `joint`, `decomposed`, `forward`, `backward`, `inference`, and one per pass (`joint:remove_noop_ops`)."""


@dataclass(frozen=True)
class Stage:
    """One graph of the pipeline, in execution order; the last node is the output.

    A stage that is no graph (generated code, a table) has `text`. `origins` are what its lines are from, 0 for nothing:
    which of `nodes`, counted from 1, or without nodes which line of the text that this one was compiled from.
    """

    name: StageName
    nodes: tuple[Node, ...] = ()
    text: str = ""
    origins: tuple[int, ...] = ()


@dataclass(frozen=True)
class Change:
    """What a pass did to its graph, in nodes; `moved` are those that it only put elsewhere."""

    added: int = 0
    removed: int = 0
    changed: int = 0
    moved: int = 0

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.moved)


@dataclass(frozen=True)
class StageInfo:
    """What is known of a stage without its nodes: `ops` counts call nodes, `nodes` all of them.

    `title` is what a person calls the step that made it. A pass has the stage that it was given, `before`, and what it
    did to it; a stage of a pass that changed nothing is that one again. `note` is a sentence about the step.
    """

    name: StageName
    ops: int
    nodes: int
    title: str = ""
    before: StageName = ""
    change: Change | None = None
    note: str = ""


SavedKind = Literal["input", "parameter", "buffer", "activation"]


@dataclass(frozen=True)
class Saved:
    """A value that forward keeps for backward. `bytes` is its storage; `used_by` names its backward nodes.

    A named size counts in `bytes` as the number that a note of the trace says, one that depends on values as nothing.
    """

    name: str
    spec: str
    bytes: int
    span: Span | None
    kind: SavedKind = "activation"
    used_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class ObservedValue:
    """What an expression or a variable held while the target ran.

    `name` is the variable that the statement at `span` bound, "return" for a returned value, or "" for
    the value of the expression at `span`. `spec` is `f32[8, 128]`, `(f32[2], f32[2])` for a tuple, or `4` for a whole
    number; `varies` is true where later iterations of a loop held another spec.
    """

    span: Span
    name: str
    spec: str
    varies: bool = False


@dataclass(frozen=True)
class Operand:
    """A part of a condition as it is written, with what it held when the condition was asked: `targets`, `None`."""

    text: str
    value: str


UnreachedReason = Literal[
    "condition",  # a condition was `truth` whenever it was asked
    "empty",  # a loop had nothing to go over
    "subject",  # no value of a `match` was that of the case
    "left",  # what comes before left the block: a `return`, say
    "failed",  # what comes before raised
]


@dataclass(frozen=True)
class Unreached:
    """Statements of a function that ran, which were never reached, and why.

    `decider` is the expression that decided it: the condition, what the loop goes over, the subject. Of what was "left"
    it is the condition of that, or None without any, and `exit` is the statement that left. `operands` are the parts of
    the decider whose values were seen and stayed the same. `variants` names those of the target that reach it.
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
    """A target with one more of its arguments, an optional tensor whose `name` that is, or with another value of a
    flag: `balance=True`.

    `inputs` are all those that it runs with, none where that was not tried; `values` are those of code that the target
    does not reach without the argument.
    """

    name: str
    inputs: tuple[InputSpec, ...] = ()
    values: tuple[ObservedValue, ...] = ()


@dataclass(frozen=True)
class NamedSizes:
    """Hold what the code calls the sizes of one tensor; "" is the name of a size that it has none for.

    A "value" is what the variable `name` held at `span`, as in `ObservedValue`; an "operation" is one that the
    expression at `span` came to, and the tensor what it was given or gave; an "input" is known by its name alone.
    """

    kind: Literal["value", "operation", "input"]
    span: Span | None
    name: str
    sizes: tuple[int, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class ModuleInfo:
    """A module of a target: its path, "" for the target's own, its class, and the parameters that it holds itself, each
    counted where it is first found."""

    path: str
    kind: str
    parameters: int
    parameter_bytes: int


Severity = Literal["error", "warning", "information"]
ProblemSeverity = Literal[Severity, "hint"]


@dataclass(frozen=True)
class Related:
    """Another place that a problem has to do with."""

    span: Span
    message: str


FindingCode = Literal[
    "all-pairs",  # a column meets a row, so that every element of one is paired with every one of the other
    "changed-in-place",  # a value that backward reads is changed before
    "copy",  # a view that is none, because the strides do not allow it
    "graph-break",  # what Dynamo does not trace
    "host-sync",  # the host waits for the device
    "no-effect",  # a conversion to what the tensor is already
    "no-gradient",  # a parameter that no loss can train
    "one-element",  # a reduction over a single element
    "pytorch-warning",  # what PyTorch itself warns of
    "unregistered",  # a parameter that its module does not know of
    "upcast",  # operands of several precisions, computed in the widest
    "wrong-gradient",  # a `backward` raises, or gives a gradient that is none of its argument
]


@dataclass(frozen=True)
class Remark:
    """A sentence for the user about one place ("B becomes 16 here: …"), or about none in their code.

    `code` says what kind of mistake it is of those that run; None of what the trace demands of sizes and values.
    `page` is the address of a page of PyTorch's about it, or "". `rests_on` is what it would be otherwise without, of
    inputs: where that was guessed, it is information.
    """

    message: str
    span: Span | None
    severity: ProblemSeverity = "information"
    related: tuple[Related, ...] = ()
    code: FindingCode | None = None
    page: str = ""
    rests_on: Literal["", "dtypes", "inputs"] = ""


@dataclass(frozen=True)
class Trace:
    """A traced target, without the nodes of its stages (those are loaded one at a time: `Stage`).

    `seconds` is the time the worker took, `capture_seconds` that of its processor for the graphs alone; `torch` is the
    version; `notes` are sentences for the user ("the whole module was imported, because …"); `remarks` say what the
    code demands of the dynamic dimensions.
    An inference-only target has the one stage `inference`, and is `refused` if PyTorch cannot differentiate it.
    `unreached` is code of functions that ran, which did not; `variants` are what else the target may be called with;
    `named` are sizes that the code has names for; `modules` the target's module and those in it, each after the one
    that holds it.
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

    @property
    def activation_bytes(self) -> int:
        """Bytes of the activations that forward keeps for backward; inputs and parameters are there without it."""
        return sum(s.bytes for s in self.saved if s.kind == "activation")

    def info(self, stage: StageName) -> StageInfo | None:
        """Return what is known of `stage`, or None when the target has no such stage."""
        return next((s for s in self.stages if s.name == stage), None)

    def kept(self, stage: StageName) -> StageName | None:
        """The stage with the graph of `stage`: the one before it where its pass changed nothing. None without any."""
        info = self.info(stage)
        while info is not None and info.change is not None and not info.change:
            info = self.info(info.before)
        return None if info is None else info.name

    def ops(self, stage: StageName) -> int | None:
        """Number of operations in `stage`, or None when the target has no such stage."""
        info = self.info(stage)
        return None if info is None else info.ops


PassKind = Literal["function", "transformer", "rewrite", "manager", "matcher", "support"]


@dataclass(frozen=True)
class Pass:
    """Something in a file that rewrites graphs or looks for parts of them; `uses` are, for a "rewrite" of one pattern
    to another, the replacement and the filters."""

    file: str
    name: str
    kind: PassKind
    span: Span
    name_span: Span
    uses: tuple[str, ...] = ()


@dataclass(frozen=True)
class PassSource:
    """A pass as a tracer loads it; the other fields are those of a request."""

    found: Pass
    source: str
    sliced: str
    module: str
    package: str
    roots: tuple[str, ...]


FailureKind = Literal[
    "syntax",  # the file does not parse
    "import",  # the target's imports or top-level statements raise
    "no-torch",  # the interpreter has no usable torch
    "interpreter",  # the interpreter cannot be started
    "construct",  # the module's constructor raises, or its arguments are not known
    "inputs",  # no inputs were found that the target runs with
    "comment",  # the `# fx:` comment is malformed
    "shape",  # sizes or ranks do not fit
    "dtype",  # dtypes do not fit
    "device",  # operands are on different devices
    "data-dependent",  # the code needs a value that fake tensors do not have
    "error",  # the target's own code raises something else
    "effect",  # the target writes files, starts programs or uses the network
    "exit",  # the target's code ends the process
    "timeout",  # over the time limit
    "memory",  # over the memory limit
    "crash",  # the process died by a signal
    "internal",  # fx-lsp's own code raised: its bug
    "unsupported",  # PyTorch cannot capture it, or there is nothing to capture
    "nothing",  # the target turned out to be no tensor code: it is shown nowhere
]


@dataclass(frozen=True)
class Failure:
    """Why a target could not be traced: a value, shown at `span` in the user's file.

    `message` is one clear sentence, `hint` says what to do about it (may be empty). `severity` is "error" only
    where the code is wrong whatever it is called with, or with the inputs that its program gives; "warning" where it
    runs with no inputs that were tried, and what stops it does not depend on them.
    `raised` is the place where it is raised, if that is in another file than `span`.
    `output` is the tail of what the user's code printed. `partial` is what ran before it failed, where something did:
    its values, and as the stage `torch` the operations as they are written.
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


Outcome: TypeAlias = Trace | Failure


def known_trace(outcome: Outcome) -> Trace | None:
    """Return what is known of a target: its trace, or what ran before it failed."""
    return outcome if isinstance(outcome, Trace) else outcome.partial


@dataclass(frozen=True)
class WrittenInputs:
    """Inputs of a target that are written down somewhere, in the language of the `# fx:` comment.

    `span` is where the text stands, or None outside of the target's file; `detail` says where then ("pyproject.toml").
    """

    text: str
    source: InputSource
    span: Span | None = None
    detail: str = ""


@dataclass(frozen=True)
class Caller:
    """A definition of the same file that uses a target, so that one can see what it calls the target with.

    `sliced` is the part of the file that it reaches, as in a request. `convention`: `get_inputs()` is meant for it.
    """

    name: str
    kind: TargetKind
    sliced: str
    convention: bool = False


@dataclass(frozen=True)
class CallSite:
    """A call of a target in straight-line code, of its own file or of a test, at `line` of `file`.

    `text` is that file with everything blanked that the call does not need, its lines where they were; `then` is an
    expression that gets to the call once it has run, or "". The rest is "" for the target's own file: `module` and
    `package` to run it under, `sliced` what it uses of the target's file, `imported` the name of that. `functions` are
    the lines at which the functions on the way to the call begin.
    """

    file: str
    line: int
    text: str
    then: str = ""
    module: str = ""
    package: str = ""
    sliced: str = ""
    imported: str = ""
    functions: tuple[int, ...] = ()


@dataclass(frozen=True)
class Configuration:
    """Something in the project that has names with values, at `line` of `file`, which people call `shown`.

    `values` are a Python literal, with `...` for what nobody wrote down; "" for a file (YAML, JSON, TOML) to be read.
    A class that has them is `name` of `module`; `arguments` are those of a command line.
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
    """The configurations that a parameter may mean, the likeliest first; `reads` is what is read of it, as JSON.

    A constructor's parameter is `init.name`.
    """

    parameter: str
    reads: str
    configurations: tuple[Configuration, ...]


Work: TypeAlias = str
"""What is done with a target besides tracing it, as in the query of a URI: `passes`, `passes&table=core`, or "".

With `variant=targets` it is done with that variant of the target; alone, it is only traced. How its text is made
is known to `read_work` and `write_work` alone.
"""
_VARIANT = "variant"
_PLAIN = "".join(chr(c) for c in range(32, 127) if chr(c) not in "%&")


def read_work(work: Work) -> dict[str, str]:
    """Return the parts of `work`, its own name first: `{"passes": "", "table": "core"}` for `passes&table=core`."""
    parts = (part.partition("=") for part in work.split("&") if part)
    return {name: unquote(value) for name, _, value in parts}


def write_work(parts: Mapping[str, str]) -> Work:
    """Return the work with these parts, as `read_work` reads it; what would end a part in one is quoted."""
    return "&".join(f"{name}={quote(value, safe=_PLAIN)}" if value else name for name, value in parts.items())


def variant_work(name: str, work: Work = "") -> Work:
    """Return `work` done with the variant `name` of a target, "" for the target as it is."""
    return write_work({**read_work(work), _VARIANT: name}) if name else work


def variant_of(work: Work) -> str:
    """Return the variant of a target that `work` is done with, "" for the target as it is."""
    return read_work(work).get(_VARIANT, "")


def plain_work(work: Work) -> Work:
    """Return `work` without the variant of the target that it is done with."""
    return write_work({name: value for name, value in read_work(work).items() if name != _VARIANT})


@dataclass(frozen=True)
class ProgramFile:
    """A file of a project that does something when it is run, and the names that it runs under."""

    file: str
    module: str
    package: str


@dataclass(frozen=True)
class WatchedFile:
    """A file whose targets a world looks for: its text, and `targets`, by qualified name with their kinds.

    It `is_program` if it does something when it is run, so that it is never imported as a whole.
    """

    file: str
    source: str
    module: str
    package: str
    targets: tuple[tuple[str, str], ...]
    is_program: bool


@dataclass(frozen=True)
class WorldRequest:
    """The files whose targets a world looks for, and the unsaved texts of other files, by path.

    `roots` go on `sys.path`, as those of a request do.
    """

    files: tuple[WatchedFile, ...]
    roots: tuple[str, ...]
    overlays: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class TraceRequest:
    """What a tracer process is asked to do.

    `source` is the whole (unsaved) text; `sliced` the same with every line blanked that the target does not reach.
    `module` and `package` are the dotted `__name__` and `__package__` to run it under; `roots` go on `sys.path`;
    `overlays` are unsaved texts of other files, by absolute path.
    `given` are inputs that are written down, those that count most first; `previous` those that an earlier text of the
    target was traced with, where a search may begin; `callers` use the target, and `sites` call it; `seconds` bounds
    the search. `work` says which stages are wanted, `passes` are those of the user that it needs; `evident` and
    `compiled` as in `Target`. `step` is the line at which the loop or the function begins that a step is of, or 0.
    `programs` may call the target, and `bound` are the names that its file has to bind for it. With a `world` the
    tracer runs these programs itself before it traces, because no process is parked for the target.
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
    sites: tuple[CallSite, ...] = ()
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
    def is_of_module(self) -> bool:
        """Return True if the target is taken from its module once that has run; other kinds run by themselves."""
        return self.kind in ("function", "method", "module")


_RAN = "::ran "
"""Separates a file from the names of the functions that a program ran, in a dependency on these."""


def ran(file: str, functions: Iterable[str]) -> str:
    """Return the dependency on the text of a file but for the bodies of functions that have not run."""
    return f"{file}{_RAN}{','.join(sorted(functions))}"


def file_that_ran(dependency: str) -> tuple[str, frozenset[str]] | None:
    """Return the file and the functions of it that have run, where a dependency is on that."""
    file, separator, names = dependency.partition(_RAN)
    return (file, frozenset(names.split(","))) if separator else None


@dataclass(frozen=True)
class TraceReply:
    """A tracer's answer: the outcome, its encoded stages, and what it depends on.

    `stages` maps a stage's name to `wire.encode_stage` bytes. `dependencies` are absolute paths of the files besides
    the target's own whose text the answer depends on, and `file::name` where it depends on how the target's own file
    calls it, or what `ran` returns; `packages` are the dotted names of the installed modules that had to be imported,
    which a zygote may import beforehand. One that is not `final` is right, and there is a reply to come that says more.
    """

    outcome: Outcome
    stages: dict[StageName, bytes] = field(default_factory=dict[str, bytes])
    dependencies: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    final: bool = True
