"""Remarks on mistakes that do not raise, each with the code of its page in `docs/problems/`."""

from __future__ import annotations

from fx_lsp.messages.template import RemarkTemplate

ALL_PAIRS = RemarkTemplate(
    "all-pairs",
    "{first} and {second} broadcast to all pairs of their elements: one of them has one dimension too many",
    "warning",
)
# A warning if nothing has a parameter.
CHANGED_IN_PLACE = RemarkTemplate(
    "changed-in-place",
    "the backward pass fails: this modifies in place a tensor that {operation} saved for it",
    "error",
)
CHANGED_INPUT_IN_PLACE = RemarkTemplate(
    "changed-in-place",
    "if an input requires a gradient, the backward pass fails: this modifies in place a tensor that {operation} saved "
    "for it",
)
COPIES = RemarkTemplate("copy", "this copies: {tensor} cannot be viewed as {result}", "hint")
NO_EFFECT = RemarkTemplate("no-effect", "no effect: the tensor is already {state}", "hint")
PYTORCH_WARNS = RemarkTemplate("pytorch-warning", "PyTorch warns: {warning}", "warning")
UPCASTS = RemarkTemplate(
    "upcast", "{narrow} and {wide} give {result}: the operations that follow are computed in {dtype}"
)

# With `fullgraph=True`, it is an error, or a warning if inputs are guessed.
GRAPH_BREAK = RemarkTemplate("graph-break", "torch.compile breaks the graph here{number}: {reason}")
FULL_GRAPH_RAISES = RemarkTemplate("graph-break", "torch.compile(fullgraph=True) raises here{number}: {reason}")

RECOMPILES = RemarkTemplate(
    "recompile", "torch.compile compiles the code again for another `{parameter}`: {reason} ({place}){times}"
)

LOSS_TAKES = RemarkTemplate(
    "loss", "`{loss}` takes {wanted} as its {argument}, but gets {meaning}: the result of `{function}`", "warning"
)
MADE_HERE = "`{function}` returns {meaning} here"

RECOMPILES_EACH_TIME = RemarkTemplate(
    "recompile", "torch.compile compiles the code again in each call, which changes what it depends on: {reason}"
)

_WAITS = "the host waits for the device here"
WAITS_FOR_COPY = RemarkTemplate("host-sync", f"{_WAITS}: the tensor is copied to the host", "hint")
WAITS_FOR_SIZE = RemarkTemplate("host-sync", f"{_WAITS}: the size of the result depends on values", "hint")
WAITS_FOR_PRINT = RemarkTemplate("host-sync", f"{_WAITS}: a tensor is printed", "hint")
WAITS_FOR_VALUES = RemarkTemplate("host-sync", f"{_WAITS}: it needs a tensor's values", "hint")

NO_GRADIENT = RemarkTemplate(
    "no-gradient", "`self.{attribute}` gets no gradient: no result depends on it differentiably"
)
_NO_FORMULA = "`{operator}` has no autograd formula"
_REGISTER = "register one with `torch.library.register_autograd`"
NO_FORMULA_DROPS = RemarkTemplate(
    "no-gradient", f"{_NO_FORMULA}: backward may drop or falsify the gradients of its operands; {_REGISTER}", "hint"
)
NO_FORMULA_RAISES = RemarkTemplate("no-gradient", f"{_NO_FORMULA}: backward raises here; {_REGISTER}", "hint")
NO_GRADIENT_OF_UNUSED = RemarkTemplate("no-gradient", "`self.{attribute}` gets no gradient: the class does not use it")

ONE_CLASS = RemarkTemplate(
    "one-element", "the cross entropy of one class is 0: {tensor} has only one score per example", "warning"
)
NORM_OF_ONE_ELEMENT = RemarkTemplate(
    "one-element",
    "the norm of a single element is its bias: {tensor} has one element in its last dimension",
    "warning",
)
CONSTANT_OVER_ONE_ELEMENT = RemarkTemplate(
    "one-element",
    "`{function}` over one element is {value}: {tensor} has one element in dimension {dim}",
    "warning",
)
NAN_OF_ONE_ELEMENT = RemarkTemplate(
    "one-element", "`{function}` of one element is NaN: {tensor} has one element in dimension {dim}", "warning"
)

ADDED_LATE = RemarkTemplate(
    "training",
    "`{parameter}` is newer than this optimizer and gets a gradient, but no optimizer changes it: construct the "
    "optimizer after it",
    "warning",
)
REPLACED = RemarkTemplate(
    "training",
    "this optimizer has the old `{parameter}`, which the module has replaced since: construct the optimizer after it",
    "warning",
)
CUT_OFF = RemarkTemplate(
    "training", "`{parameter}` is in an optimizer and gets no gradient: the result of this has no graph to it"
)
MADE_IN_FORWARD = RemarkTemplate(
    "training", "each call makes a new layer here, whose parameters never train: make it in `__init__`", "warning"
)
NEVER_ZEROED = RemarkTemplate(
    "training",
    "the gradients contain those of the step before: call `zero_grad()` after each step",
    "warning",
)

_DO_NOT_REACH = "`parameters()`, `to()` and `state_dict()` do not reach"
PLAIN_TENSOR = RemarkTemplate(
    "unregistered",
    f"`self.{{attribute}}` is a plain tensor: {_DO_NOT_REACH} it; make it an `nn.Parameter`",
    "warning",
)
COMPUTED_TENSOR = RemarkTemplate(
    "unregistered",
    f"`self.{{attribute}}` is computed from an `nn.Parameter` and is none: {_DO_NOT_REACH} it; compute first, and make "
    "the result the parameter",
    "warning",
)
PLAIN_CONTAINER = RemarkTemplate(
    "unregistered",
    f"`self.{{attribute}}` is a plain {{container}}: {_DO_NOT_REACH} its {{items}}; make it an `nn.{{replacement}}`",
    "warning",
)

BACKWARD_RAISES = RemarkTemplate("wrong-gradient", "`{function}.backward` raises: {error}", "error", rests_on="inputs")
TOO_FEW_OR_MANY_GRADIENTS = RemarkTemplate(
    "wrong-gradient",
    "`{function}.backward` returns {gradients} for {arguments} of `forward`: return one, or None, for each",
    "error",
)
# A result that is not a tensor is wrong for all inputs.
WRONG_GRADIENT = RemarkTemplate(
    "wrong-gradient",
    "`{function}.backward` returns {gradient} as the gradient of `{argument}`, which has the shape {shape}",
    "error",
    rests_on="inputs",
)
