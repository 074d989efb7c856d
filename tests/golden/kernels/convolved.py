"""convolved as Triton kernels: forward and backward.

Made for these sizes alone

    x  f32[1, 2, 6, 6]
    w  f32[3, 2, 3, 3]
"""

import functools
import os

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import custom_op
from torch.utils._pytree import tree_leaves


def config(num_warps, num_stages=3, **blocks):
    return triton.Config(blocks, num_warps=num_warps, num_stages=num_stages)


def autotuned(*configs, **options):
    """Autotunes a kernel for each `key`; under Triton's interpreter, uses the first."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return triton.autotune(list(configs[:1] if interpreted else configs), **options)


BLOCK_CONFIGS = [config(BLOCK=1024, num_warps=4), config(BLOCK=2048, num_warps=8),
                 config(BLOCK=512, num_warps=2), config(BLOCK=4096, num_warps=8)]


@triton.jit
def relu(a):
    """The positive part; NaN stays NaN."""
    return tl.where(a <= 0, 0, a).to(a.dtype)


@autotuned(*BLOCK_CONFIGS, key=["N"])
@triton.jit
def convolved_forward_kernel(convolution_ptr, out_ptr, le_ptr, N: tl.constexpr,
                             BLOCK: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < N
    # model.py:154  return F.conv2d(x, w).relu() * 2
    convolution = tl.load(convolution_ptr + cols, mask=mask)
    relu_1 = relu(convolution)
    tl.store(out_ptr + cols, relu_1 * 2.0, mask=mask)
    tl.store(le_ptr + cols, relu_1 <= 0.0, mask=mask)


@autotuned(*BLOCK_CONFIGS, key=["N"])
@triton.jit
def convolved_backward_kernel(le_ptr, grad_out_ptr, grad_convolution_ptr,
                              N: tl.constexpr, BLOCK: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < N
    # model.py:154  return F.conv2d(x, w).relu() * 2
    le = tl.load(le_ptr + cols, mask=mask)
    grad_out = tl.load(grad_out_ptr + cols, mask=mask)
    tl.store(grad_convolution_ptr + cols, tl.where(le, 0.0, grad_out * 2.0), mask=mask)


def is_plain(*values, plain=frozenset([torch.Tensor, torch.nn.Parameter, int, bool])):
    """Whether these are real tensors and numbers, not traced ones."""
    return {type(value) for value in values} <= plain


def as_operator(name):
    """Registers a function as an operator, for torch.compile and other tracers.

    On plain tensors the function is called directly: the dispatcher takes longer.
    """

    def register(function):
        operator = custom_op(name, function, mutates_args=())
        operator.register_fake(function)

        @functools.wraps(function)
        def call(*args):
            is_traced = torch.compiler.is_compiling() or not is_plain(*args)
            return (operator if is_traced else function)(*args)

        return call

    return register


def launch(kernel, grid, *args, **blocks):
    """Launches a kernel with arguments; with traced tensors, it does nothing.

    Triton compiles and autotunes it in the first launch with such arguments.
    Later launches use the result directly, which takes a fraction of the time.
    """
    if not is_plain(*args):
        return
    first = args[0]
    if first.is_cuda and first.get_device() != torch.cuda.current_device():
        with torch.cuda.device_of(first):  # Triton launches on the current device
            return launch(kernel, grid, *args, **blocks)
    key, values = [id(kernel), first.get_device(), *blocks.values()], []
    for arg in args:
        value = arg if type(arg) is int else arg.data_ptr()
        values.append(value)  # of a tensor, Triton looks at the alignment
        key.append(value if value is arg else (value % 16, arg.dtype))
    key = tuple(key)
    if key not in LAUNCHES:
        return first_launch(key, kernel, grid, args, blocks)
    compiled, meta, chosen = LAUNCHES[key]
    size = grid(meta) if callable(grid) else grid
    compiled[(*size, 1, 1)](*values, *chosen)


def first_launch(key, kernel, grid, args, blocks):
    """Launches a kernel in Triton's own way, and keeps what it compiled."""
    if args[0].device.type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        raise ValueError("the tensors are on the CPU: these kernels run on a GPU")
    values = {}

    def chosen_grid(meta):
        values.update(meta)
        return grid(meta) if callable(grid) else grid

    compiled = kernel[chosen_grid](*args, **blocks)
    if len(getattr(getattr(compiled, "src", None), "signature", ())) < len(values):
        return  # an interpreter ran it, or Triton before 3.3 compiled parameters away
    if len(LAUNCHES) == 10_000:  # the sizes vary
        LAUNCHES.clear()
    meta = {name: values[name] for name in list(values)[len(args) :]}
    LAUNCHES[key] = compiled, meta, tuple(meta.values())


LAUNCHES = {}


@as_operator("convolved_triton::forward")
def convolved_forward(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    # PyTorch computes it: the library is faster for convolutions
    convolution = torch.ops.aten.convolution.default(x, w, None, [1, 1], [0, 0], [1, 1],
                                                     False, [0, 0], 1)
    out = torch.empty(1, 3, 4, 4, dtype=torch.float32, device=x.device)
    le = torch.empty(1, 3, 4, 4, dtype=torch.bool, device=x.device)
    launch(convolved_forward_kernel, lambda meta: (-(-48 // meta["BLOCK"]),),
           convolution, out, le, 48)
    return out, le


@as_operator("convolved_triton::backward")
def convolved_backward(x: Tensor, w: Tensor, le: Tensor, grad_out: Tensor,
                       needs_x: bool, needs_w: bool) -> tuple[Tensor, Tensor]:
    grad_convolution = torch.empty(1, 3, 4, 4, dtype=torch.float32, device=x.device)
    launch(convolved_backward_kernel, lambda meta: (-(-48 // meta["BLOCK"]),), le,
           grad_out, grad_convolution, 48)
    # PyTorch computes it: the library is faster for convolutions
    convolution_backward = torch.ops.aten.convolution_backward.default(
        grad_convolution, x, w, [0], [1, 1], [0, 0], [1, 1], False, [0, 0], 1,
        [needs_x, needs_w, False])
    return (convolution_backward[0] if needs_x else x.new_empty(0),
            convolution_backward[1] if needs_w else x.new_empty(0))


class _Convolved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        out, le = convolved_forward(x, w)
        ctx.save_for_backward(x, w, le)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise RuntimeError("convolved does not support create_graph=True")
        x, w, le = ctx.saved_tensors
        grad_out = grad_out.contiguous()
        needs_x, needs_w = ctx.needs_input_grad
        grad_x, grad_w = convolved_backward(x, w, le, grad_out, needs_x, needs_w)
        return grad_x if needs_x else None, grad_w if needs_w else None


# name, dtype, sizes, strides (None: contiguous), gradient, may be copied
INPUTS = [("x", torch.float32, (1, 2, 6, 6), None, True, True),
          ("w", torch.float32, (3, 2, 3, 3), None, True, True)]


def checked(*tensors):
    """Returns tensors in the layout of INPUTS, copied if needed; raises for others."""
    accepted, sizes, device = [], {}, getattr(tensors[0], "device", None)
    for tensor, (name, dtype, shape, strides, gradient, copied) in zip(tensors, INPUTS):
        if getattr(tensor, "dtype", None) != dtype:
            actual = getattr(tensor, "dtype", type(tensor).__name__)
            raise TypeError(f"{name} must be a tensor of {dtype}, not {actual}")
        if tensor.shape != shape:  # None is any size, and a name any, but the same one
            wanted = []
            for size, actual in zip(shape, tensor.shape):
                named = (sizes.setdefault(size, actual) if isinstance(size, str)
                         else size)
                wanted.append(actual if named is None else named)
            wanted = (*wanted, *shape[tensor.dim() :])
            if tensor.shape != wanted:
                raise ValueError(
                    f"{name} must have the shape {wanted}, not {tuple(tensor.shape)}")
        if tensor.device != device:
            raise ValueError(f"{name} must be on {device}, not on {tensor.device}")
        if not gradient and tensor.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                f"{name} gets no gradient from these kernels: pass {name}.detach()")
        if strides is None and not tensor.is_contiguous():
            if not copied:
                raise ValueError(
                    f"{name} must be contiguous: a result overwrites or views it")
            tensor = tensor.contiguous()
        accepted.append(tensor)
    return accepted


def convolved(x, w):
    tensors = checked(x, w)
    return _Convolved.apply(*tensors)


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


def results(function, args, kwargs):
    """Return the tensors that a call returns, and the gradients of its inputs."""
    values = tree_leaves((args, kwargs))
    inputs = [v for v in values if torch.is_tensor(v) and v.requires_grad]
    outputs = [v for v in tree_leaves(function(*args, **kwargs)) if torch.is_tensor(v)]
    ends = [v for v in outputs if v.requires_grad]
    if not ends or not inputs:
        return outputs
    gradients = [torch.ones_like(v) for v in ends]
    options = {"allow_unused": True, "materialize_grads": True}
    return [*outputs, *torch.autograd.grad(ends, inputs, gradients, **options)]


if __name__ == "__main__":
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device(device):
        reference = original()
    both = [results(f, *arguments(0, device)) for f in (convolved, reference)]
    for ours, right in zip(*both):
        difference = ours.to(torch.complex128) - right.to(torch.complex128)
        print(f"largest difference: {difference.abs().max():.1e}")
