"""convolved as Triton kernels: forward and backward.

Made for

    x  f32[1, 2, 6, 6]
    w  f32[3, 2, 3, 3]
"""

import functools
import inspect
import os
import sys

import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton
from torch.utils._pytree import tree_map


def autotuned(*configs, key):
    """Autotunes configurations for each `key`; under Triton's interpreter, uses the first."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return triton.autotune(list(configs[:1] if interpreted else configs), key=key)


@triton.jit
def relu(a):
    """The positive part; NaN stays NaN."""
    return tl.where(a <= 0, 0, a).to(a.dtype)


@autotuned(
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=8),
    triton.Config({"BLOCK": 512}, num_warps=4),
    triton.Config({"BLOCK": 4096}, num_warps=8),
    key=["N"],
)
@triton.jit
def convolved_forward_kernel(
    convolution_ptr, out_ptr, le_ptr, N: tl.constexpr, BLOCK: tl.constexpr
):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < N
    # model.py:148  return F.conv2d(x, w).relu() * 2
    convolution = tl.load(convolution_ptr + cols, mask=mask)
    relu_1 = relu(convolution)
    tl.store(out_ptr + cols, relu_1 * 2.0, mask=mask)
    tl.store(le_ptr + cols, relu_1 <= 0.0, mask=mask)


@autotuned(
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=8),
    triton.Config({"BLOCK": 512}, num_warps=4),
    triton.Config({"BLOCK": 4096}, num_warps=8),
    key=["N"],
)
@triton.jit
def convolved_backward_kernel(
    le_ptr, grad_out_ptr, grad_convolution_ptr, N: tl.constexpr, BLOCK: tl.constexpr
):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < N
    # model.py:148  return F.conv2d(x, w).relu() * 2
    le = tl.load(le_ptr + cols, mask=mask)
    grad_out = tl.load(grad_out_ptr + cols, mask=mask)
    tl.store(grad_convolution_ptr + cols, tl.where(le, 0.0, grad_out * 2.0), mask=mask)


def is_plain(*values):
    """Whether these are real tensors and numbers, not traced ones."""
    return all(
        type(value) in (torch.Tensor, torch.nn.Parameter, int) for value in values
    )


def as_operator(name):
    """Registers a function as an operator, for torch.compile and other tracers.

    On plain tensors the function is called directly: the dispatcher takes longer.
    """

    def register(function):
        traced = triton_op(name, function, mutates_args={})

        @functools.wraps(function)
        def call(*args):
            if torch.compiler.is_compiling() or not is_plain(*args):
                return traced(*args)
            first = next(filter(torch.is_tensor, args), torch.Tensor())
            with torch.cuda.device_of(first):  # Triton launches on the current device
                return function(*args)

        return call

    return register


def launch(kernel, out):
    """Returns a kernel that writes `out`, wrapped for tracing if `out` is traced."""
    if not is_plain(out):
        return wrap_triton(kernel)
    if out.device.type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        raise ValueError("the tensors are on the CPU: these kernels run on a GPU")
    return kernel


@as_operator("convolved_triton::forward")
def convolved_forward(
    x: torch.Tensor, w: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    # PyTorch computes it: the library is faster for convolutions
    convolution = torch.ops.aten.convolution.default(
        x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1
    )
    out = torch.empty((1, 3, 4, 4), dtype=torch.float32, device=x.device)
    le = torch.empty((1, 3, 4, 4), dtype=torch.bool, device=x.device)
    launch(convolved_forward_kernel, out)[
        lambda meta: (triton.cdiv(48, meta["BLOCK"]),)
    ](convolution, out, le, 48)
    return out, le


@as_operator("convolved_triton::backward")
def convolved_backward(
    x: torch.Tensor, w: torch.Tensor, le: torch.Tensor, grad_out: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    grad_convolution = torch.empty((1, 3, 4, 4), dtype=torch.float32, device=x.device)
    launch(convolved_backward_kernel, grad_convolution)[
        lambda meta: (triton.cdiv(48, meta["BLOCK"]),)
    ](le, grad_out, grad_convolution, 48)
    # PyTorch computes it: the library is faster for convolutions
    convolution_backward = torch.ops.aten.convolution_backward.default(
        grad_convolution,
        x,
        w,
        [0],
        [1, 1],
        [0, 0],
        [1, 1],
        False,
        [0, 0],
        1,
        [True, True, False],
    )
    return convolution_backward[0], convolution_backward[1]


class _Convolved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        out, le = convolved_forward(x, w)
        ctx.save_for_backward(x, w, le)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise RuntimeError(
                "convolved has no second derivatives: differentiate without create_graph=True"
            )
        x, w, le = ctx.saved_tensors
        grad_out = grad_out.contiguous()
        grad_x, grad_w = convolved_backward(x, w, le, grad_out)
        return grad_x, grad_w


def check(tensor, name, dtype, shape, strides=None, device=None, gradient=True):
    """Raises if the kernels do not support a tensor; None means any value."""
    if not isinstance(tensor, torch.Tensor) or tensor.dtype != dtype:
        found = (
            tensor.dtype if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        )
        raise TypeError(f"{name} must be a tensor of {dtype}, not {found}")
    if tensor.shape != shape and (
        len(shape) != tensor.dim()
        or any(
            size is not None and size != found
            for size, found in zip(shape, tensor.shape)
        )
    ):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(
            f"{name} must have the shape ({wanted}), not {tuple(tensor.shape)}"
        )
    if strides is None and not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous: pass {name}.contiguous()")
    if strides is not None and any(
        stride is not None and stride != found
        for stride, found in zip(strides, tensor.stride())
    ):
        raise ValueError(
            f"{name} must have the strides {strides}, not {tensor.stride()}"
        )
    if device is not None and tensor.device != device:
        raise ValueError(f"{name} must be on {device}, not on {tensor.device}")
    if not gradient and tensor.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            f"{name} gets no gradient from these kernels: pass {name}.detach()"
        )


def convolved(x, w):
    check(x, "x", torch.float32, (1, 2, 6, 6))
    check(w, "w", torch.float32, (3, 2, 3, 3), device=x.device)
    return _Convolved.apply(x, w)


def original():
    """Return what the kernels were generated from."""
    import torch.nn.functional as F

    def convolved(x, w):
        return F.conv2d(x, w).relu() * 2

    return convolved


def arguments(seed, device):
    """Return random positional and keyword arguments that the kernels accept."""
    torch.manual_seed(seed)
    x = torch.randn((1, 2, 6, 6), device=device, requires_grad=True)
    w = torch.randn((3, 2, 3, 3), device=device, requires_grad=True)
    return (x, w), {}


def tensors(value, name):
    """Yield the tensors in a value, each with the path to it."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, torch.nn.Module):
        for part, tensor in (*value.named_parameters(), *value.named_buffers()):
            yield f"{name}.{part}", tensor
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors(item, f"{name}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from tensors(item, f"{name}[{number}]")
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        for key, item in vars(value).items():
            yield from tensors(item, f"{name}.{key}")


def results(function, args, kwargs):
    """Return the results of a call, the gradients of its inputs, and the inputs that it changes.

    The gradients are computed from random gradients of all results.
    """
    bound = inspect.signature(convolved).bind(*args, **kwargs).arguments
    inputs = {n: t for name, value in bound.items() for n, t in tensors(value, name)}
    before = {name: tensor.detach().clone() for name, tensor in inputs.items()}
    leaves = {name: tensor for name, tensor in inputs.items() if tensor.requires_grad}
    out = [tensor for _, tensor in tensors(function(*args, **kwargs), "out")]
    values = {f"out[{n}]" if len(out) > 1 else "out": t for n, t in enumerate(out)}
    roots = {id(leaf) for leaf in leaves.values()}
    out = [t for t in out if t.requires_grad and (t.grad_fn or id(t) in roots)]
    if out and leaves:
        torch.manual_seed(0)
        gradients = [
            torch.randn(t.shape, dtype=torch.float64, device="cpu").to(t) for t in out
        ]
        options = {"allow_unused": True, "materialize_grads": True}
        grads = torch.autograd.grad(out, list(leaves.values()), gradients, **options)
        for name, grad in zip(leaves, grads):
            values[f"gradient of {name}"] = grad
    for name, tensor in inputs.items():
        if not torch.equal(tensor, before[name]):
            values[f"{name} afterwards"] = tensor
    return values


def doubled(value):
    """Return a floating-point tensor or module in float64, and anything else unchanged."""
    if isinstance(value, torch.nn.Module):
        return value.double()
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.detach().double().requires_grad_(value.requires_grad)
    return value


TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 2e-5,
    torch.float16: 4e-3,
    torch.bfloat16: 3e-2,
    torch.complex128: 1e-9,
    torch.complex64: 2e-5,
}


def differences(value, right):
    """Return the error of numbers, relative to the right ones and their mean magnitude."""
    if right.is_complex():
        value, right = torch.view_as_real(value), torch.view_as_real(right)
    value, right = value.detach().double(), right.detach().double()
    same = (value == right) | (value.isnan() & right.isnan())
    size = right.abs().nan_to_num(nan=0.0, posinf=0.0)
    unit = size + size.sum() / (size > 0).sum().clamp(min=1)
    off = (value - right).abs() / unit
    return off.nan_to_num(nan=torch.inf).masked_fill(same, 0.0)


def finite(value):
    """Return which numbers of a tensor are finite, whatever its dtype."""
    return (value if value.is_complex() else value.double()).isfinite()


def judged(value, right, exact):
    """Return whether a result is wrong, how far it is off, and how far the original is.

    `right` is the original's result, `exact` the same in float64. If these differ much, because the
    function jumps or is zero except for rounding, a result may be equally far off.
    Elements where the original overflows are not compared.
    """
    if value is None or right is None:
        return True, torch.inf, torch.inf
    if value.shape != right.shape or value.dtype != right.dtype:
        return True, torch.inf, torch.inf
    allowed = TOLERANCE.get(value.dtype, 0.0)
    if exact is not None and exact.shape == right.shape and not finite(right).all():
        comparable = finite(right) | ~finite(exact)
        wide = torch.complex128 if right.is_complex() else torch.float64
        value, right, exact = (t.to(wide)[comparable] for t in (value, right, exact))
    if not right.numel():
        return False, 0.0, 0.0
    near = differences(value, right)
    close = bool((near <= 10 * allowed).all())
    if exact is None or not allowed:
        return not close, float(near.max()), 0.0
    ours, theirs = differences(value, exact), differences(right, exact)
    off, far = float(ours.max()), float(theirs.max())
    if far < 0.05:
        return off > max(allowed, 10 * far), off, far
    as_many = (ours > allowed).sum() <= 4 * (theirs > allowed).sum() + 1
    return not (close or (off <= 4 * far < torch.inf and as_many)), off, far


FAILURES = AssertionError, LookupError, RuntimeError, TypeError, ValueError


def between(value):
    """Map a floating-point tensor to numbers between 0 and 1."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.detach().frac().abs().requires_grad_(value.requires_grad)
    return value


def accepted(reference, make):
    """Return a function that makes random arguments that the original accepts."""
    failures = []
    for draw in (make, lambda seed: tree_map(between, make(seed))):
        try:
            for seed in range(3):
                results(reference, *draw(seed))
            return draw
        except FAILURES as error:
            failures.append(f"{type(error).__name__}: {error}")
    sys.exit(f"the original fails with random arguments: {failures[0]}")


def compare(kernels, reference, make):
    """Print how far the results are off, for several seeds; return the names of wrong ones."""
    worst = {}
    for seed in range(3):
        values, right = results(kernels, *make(seed)), results(reference, *make(seed))
        try:
            exact = results(reference, *tree_map(doubled, make(seed)))
        except FAILURES:
            exact = {}  # the original does not support float64
        for name in dict.fromkeys((*right, *values)):
            verdict = judged(values.get(name), right.get(name), exact.get(name))
            worst[name] = max(worst.get(name, verdict), verdict)
    for name, (wrong, off, far) in worst.items():
        verdict = "wrong" if wrong else "right"
        print(f"{verdict}  {name:<32}  off by {off:.1e}, the original by {far:.1e}")
    return [name for name, (wrong, _, _) in worst.items() if wrong]


def times(function, args, kwargs):
    """Return the median milliseconds of a call, and of a call with its backward."""

    def forward():
        out = [tensor for _, tensor in tensors(function(*args, **kwargs), "out")]
        return [tensor for tensor in out if tensor.requires_grad]

    def both():
        torch.autograd.grad(forward(), leaves, gradients, allow_unused=True)

    leaves = [t for _, t in tensors([*args, *kwargs.values()], "") if t.requires_grad]
    gradients = [torch.ones_like(tensor) for tensor in forward()]
    calls = [forward, both] if gradients and leaves else [forward]
    return [triton.testing.do_bench(call, return_mode="median") for call in calls]


if __name__ == "__main__":
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        sys.exit("no GPU is available: set TRITON_INTERPRET=1")
    with torch.device(device):
        reference = original()

    def drawn(seed):
        return arguments(seed, device)

    make = accepted(reference, drawn)
    wrong = compare(convolved, reference, make)
    if device == "cpu":
        print("not timed: without a GPU, the kernels run in an interpreter")
    else:
        ours = times(convolved, *make(0))
        theirs = times(reference, *make(0))
        for what, mine, other in zip(("forward", "forward and backward"), ours, theirs):
            print(f"{what}: {mine:.3f} ms, the original {other:.3f} ms")
    sys.exit(1 if wrong else 0)
