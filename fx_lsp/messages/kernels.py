"""Failures of the kernels of a target: they are not compiled, or Triton rejects them."""

from __future__ import annotations

from fx_lsp.messages.template import FailureTemplate

NO_SUCH_CHIP = FailureTemplate("unsupported", "there is no target {target}", "The targets are {targets}.")
NO_TRITON = FailureTemplate("unsupported", "this interpreter has no triton", "Install triton into it.")
UNPARSED_KERNELS = FailureTemplate("syntax", "the file does not parse: {error}")
KERNELS_NOT_IMPORTED = FailureTemplate("import", "the file cannot be imported: {error}")

# The launch does not fit the kernel, which the user has edited.
NO_SUCH_KERNEL = FailureTemplate("error", "the file has no kernel named {kernel}")
NOT_A_KERNEL = FailureTemplate("error", "{kernel} is not a kernel: it lacks @triton.jit")
NO_SUCH_ARGUMENT = FailureTemplate("error", "{kernel} has no argument {argument}")
ARGUMENT_MISSING = FailureTemplate("error", "{kernel} is launched without its argument {argument}")
CONSTEXPR_MISSING = FailureTemplate("error", "{kernel} is launched without a value of its constexpr {argument}")

NOT_COMPILED = FailureTemplate(
    "error", "Triton cannot compile {kernel} for {target}: {error}", "{details}", severity="error"
)
COMPILER_DIED = FailureTemplate("crash", "compiling {kernel} for {target} ended its process: {error}")
COMPILER_DIED_SILENTLY = FailureTemplate("crash", "compiling {kernel} for {target} ended its process")
