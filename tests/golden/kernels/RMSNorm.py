"""rms_norm as Triton kernels: forward and backward.

Made for these sizes alone

    self.weight  f32[8]
    x            f32[4, 12, 8]

`RMSNorm.forward = rms_norm` uses them instead.
The class `RMSNorm` of this file uses them. It has the state_dict of the original.
"""

import copy
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


@autotuned(config(ROWS=64, num_warps=1), config(ROWS=64, num_warps=2), key=["M"])
@triton.jit
def rms_norm_forward_kernel(x_ptr, weight_ptr, scale_ptr, out_ptr, M,
                            ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    rows_mask = rows < M
    cols = tl.arange(0, BLOCK)[None, :]
    x = tl.load(x_ptr + rows * 8 + cols, mask=rows_mask)
    weight = tl.load(weight_ptr + cols)
    # norms.py:8  scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    scale = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / 8.0 + 1e-06)
    tl.store(scale_ptr + rows, scale, mask=rows_mask)
    # norms.py:9  return x * scale * weight
    tl.store(out_ptr + rows * 8 + cols, x * scale * weight, mask=rows_mask)


@autotuned(config(num_warps=1), config(num_warps=2), key=["M"])
@triton.jit
def rms_norm_backward_kernel(grad_out_ptr, x_ptr, scale_ptr, weight_ptr, grad_x_ptr,
                             grad_weight_ptr, M, ROWS: tl.constexpr,
                             BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)[None, :]
    # norms.py:9  return x * scale * weight
    total_acc = tl.zeros([ROWS, BLOCK], tl.float32)
    weight = tl.load(weight_ptr + cols)
    for start in tl.range(0, M, ROWS, num_stages=3):
        rows = (start + tl.arange(0, ROWS))[:, None]
        rows_mask = rows < M
        grad_out = tl.load(grad_out_ptr + rows * 8 + cols, mask=rows_mask, other=0.0)
        x = tl.load(x_ptr + rows * 8 + cols, mask=rows_mask, other=0.0)
        # norms.py:8  scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
        scale = tl.load(scale_ptr + rows, mask=rows_mask, other=0.0)
        total_acc += grad_out * (x * scale)
        grad_mul = grad_out * weight
        mul_6 = tl.sum(grad_mul * x, axis=1, keep_dims=True) * -0.5
        mul_9 = mul_6 * (scale * scale * scale) / 8.0 * (x * 2.0)
        grad_x = grad_mul * scale + mul_9
        tl.store(grad_x_ptr + rows * 8 + cols, grad_x, mask=rows_mask)
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
def rms_norm_forward(weight: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    scale = torch.empty(4, 12, 1, dtype=torch.float32, device=weight.device)
    out = torch.empty(4, 12, 8, dtype=torch.float32, device=weight.device)
    launch(rms_norm_forward_kernel, lambda meta: (-(-48 // meta["ROWS"]),), x, weight,
           scale, out, 48, BLOCK=8)
    return out, scale


@as_operator("rms_norm_triton::backward")
def rms_norm_backward(weight: Tensor, x: Tensor, scale: Tensor,
                      grad_out: Tensor) -> tuple[Tensor, Tensor]:
    grad_x = torch.empty(4, 12, 8, dtype=torch.float32, device=weight.device)
    grad_weight = torch.empty(8, dtype=torch.float32, device=weight.device)
    launch(rms_norm_backward_kernel, (1,), grad_out, x, scale, weight, grad_x,
           grad_weight, 48, ROWS=128, BLOCK=8)
    return grad_weight, grad_x


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight, x):
        out, scale = rms_norm_forward(weight, x)
        ctx.save_for_backward(weight, x, scale)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise RuntimeError("rms_norm does not support create_graph=True")
        weight, x, scale = ctx.saved_tensors
        grad_out = grad_out.contiguous()
        grad_weight, grad_x = rms_norm_backward(weight, x, scale, grad_out)
        return grad_weight, grad_x


# name, dtype, sizes, strides (None: contiguous), gradient, may be copied
INPUTS = [("self.weight", torch.float32, (8,), None, True, True),
          ("x", torch.float32, (4, 12, 8), None, True, True)]


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


def rms_norm(self, x):
    if self.eps != 1e-06:
        raise ValueError(f"self.eps is 1e-06 in these kernels, not {self.eps!r}")
    tensors = checked(self.weight, x)
    return _RmsNorm.apply(*tensors)


def original():
    """Return what the kernels were generated from."""
    from torch import nn

    def rms_norm(x, weight, eps=1e-6):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
        return x * scale * weight

    class RMSNorm(nn.Module):
        def __init__(self, width: int, eps: float = 1e-6):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))
            self.eps = eps

        def forward(self, x):
            return rms_norm(x.float(), self.weight, self.eps).to(x.dtype)

    return RMSNorm.__call__, {"module": RMSNorm(width=8)}


def arguments(seed, device, module):
    """Return random positional and keyword arguments that the kernels accept."""
    torch.manual_seed(seed)
    x = torch.randn((4, 12, 8), device=device, requires_grad=True)
    module = copy.deepcopy(module)
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            tensor.data.add_(torch.rand_like(tensor), alpha=0.1)
    return (module, x), {}


def results(function, args, kwargs):
    """Return the tensors that a call returns, and the gradients of its inputs."""
    values = tree_leaves((args, kwargs, *args[0].parameters()))
    inputs = [v for v in values if torch.is_tensor(v) and v.requires_grad]
    outputs = [v for v in tree_leaves(function(*args, **kwargs)) if torch.is_tensor(v)]
    ends = [v for v in outputs if v.requires_grad]
    if not ends or not inputs:
        return outputs
    gradients = [torch.ones_like(v) for v in ends]
    options = {"allow_unused": True, "materialize_grads": True}
    return [*outputs, *torch.autograd.grad(ends, inputs, gradients, **options)]


def __getattr__(name):
    """Makes the class RMSNorm on first use: the original with rms_norm as its forward."""
    if name != "RMSNorm":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    base = type(original()[1]["module"])
    globals()[name] = type(name, (base,), {"forward": rms_norm, "__module__": __name__})
    return globals()[name]


if __name__ == "__main__":
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device(device):
        reference, names = original()
    both = [results(f, *arguments(0, device, **names)) for f in (rms_norm, reference)]
    for ours, right in zip(*both):
        difference = ours.to(torch.complex128) - right.to(torch.complex128)
        print(f"largest difference: {difference.abs().max():.1e}")
