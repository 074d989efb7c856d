"""rms_norm as Triton kernels: forward and backward.

Made for these sizes alone

    x       f32[4, 64]
    weight  f32[64]
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


@autotuned(config(ROWS=4, num_warps=1), config(ROWS=4, num_warps=2), key=["N"])
@triton.jit
def rms_norm_forward_kernel(x_ptr, weight_ptr, scale_ptr, out_ptr, N: tl.constexpr,
                            ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    x = tl.load(x_ptr + rows * N + cols)
    weight = tl.load(weight_ptr + cols)
    # norms.py:8  scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    scale = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / 64.0 + 1e-06)
    tl.store(scale_ptr + rows, scale)
    # norms.py:9  return x * scale * weight
    tl.store(out_ptr + rows * N + cols, x * scale * weight)


@autotuned(config(num_warps=1), config(num_warps=2), key=["M", "N"])
@triton.jit
def rms_norm_backward_kernel(grad_out_ptr, x_ptr, scale_ptr, weight_ptr, grad_x_ptr,
                             grad_weight_ptr, M, N: tl.constexpr, ROWS: tl.constexpr,
                             BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)[None, :]
    # norms.py:9  return x * scale * weight
    total_acc = tl.zeros([ROWS, BLOCK], tl.float32)
    weight = tl.load(weight_ptr + cols)
    for start in tl.range(0, M, ROWS, num_stages=3):
        rows = (start + tl.arange(0, ROWS))[:, None]
        rows_mask = rows < M
        grad_out = tl.load(grad_out_ptr + rows * N + cols, mask=rows_mask, other=0.0)
        x = tl.load(x_ptr + rows * N + cols, mask=rows_mask, other=0.0)
        # norms.py:8  scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
        scale = tl.load(scale_ptr + rows, mask=rows_mask, other=0.0)
        total_acc += grad_out * (x * scale)
        grad_mul = grad_out * weight
        mul_6 = tl.sum(grad_mul * x, axis=1, keep_dims=True) * -0.5
        mul_9 = mul_6 * (scale * scale * scale) / 64.0 * (x * 2.0)
        grad_x = grad_mul * scale + mul_9
        tl.store(grad_x_ptr + rows * N + cols, grad_x, mask=rows_mask)
    sum_1 = tl.sum(total_acc, axis=0, keep_dims=True)
    tl.store(grad_weight_ptr + cols, sum_1)


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


@as_operator("rms_norm_triton::forward")
def rms_norm_forward(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    scale = torch.empty(4, 1, dtype=torch.float32, device=x.device)
    out = torch.empty(4, 64, dtype=torch.float32, device=x.device)
    launch(rms_norm_forward_kernel, lambda meta: (-(-4 // meta["ROWS"]),), x, weight,
           scale, out, 64, BLOCK=64)
    return out, scale


@as_operator("rms_norm_triton::backward")
def rms_norm_backward(x: Tensor, weight: Tensor, scale: Tensor,
                      grad_out: Tensor) -> tuple[Tensor, Tensor]:
    grad_x = torch.empty(4, 64, dtype=torch.float32, device=x.device)
    grad_weight = torch.empty(64, dtype=torch.float32, device=x.device)
    launch(rms_norm_backward_kernel, (1,), grad_out, x, scale, weight, grad_x,
           grad_weight, 4, 64, ROWS=16, BLOCK=64)
    return grad_x, grad_weight


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        out, scale = rms_norm_forward(x, weight)
        ctx.save_for_backward(x, weight, scale)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise RuntimeError("rms_norm does not support create_graph=True")
        x, weight, scale = ctx.saved_tensors
        grad_out = grad_out.contiguous()
        grad_x, grad_weight = rms_norm_backward(x, weight, scale, grad_out)
        return grad_x, grad_weight


# name, dtype, sizes, strides (None: contiguous), gradient, may be copied
INPUTS = [("x", torch.float32, (4, 64), None, True, True),
          ("weight", torch.float32, (64,), None, True, True)]


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


def rms_norm(x, weight, eps=1e-06):
    if eps != 1e-06:
        raise ValueError(f"eps is 1e-06 in these kernels, not {eps!r}")
    tensors = checked(x, weight)
    return _RmsNorm.apply(*tensors)


def original():
    """Return what the kernels were generated from."""

    def rms_norm(x, weight, eps=1e-6):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
        return x * scale * weight

    return rms_norm


def arguments(seed, device):
    """Return random positional and keyword arguments that the kernels accept."""
    torch.manual_seed(seed)
    x = torch.randn((4, 64), device=device, requires_grad=True)
    weight = torch.randn((64,), device=device, requires_grad=True)
    return (x, weight), {}


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
    both = [results(f, *arguments(0, device)) for f in (rms_norm, reference)]
    for ours, right in zip(*both):
        difference = ours.to(torch.complex128) - right.to(torch.complex128)
        print(f"largest difference: {difference.abs().max():.1e}")
