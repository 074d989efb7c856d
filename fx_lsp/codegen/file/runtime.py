"""Functions that are copied unchanged into a generated file that needs them."""

from __future__ import annotations

AUTOTUNED = '''
def config(num_warps, num_stages=3, **blocks):
    return triton.Config(blocks, num_warps=num_warps, num_stages=num_stages)


def autotuned(*configs, **options):
    """Autotunes a kernel for each `key`; under Triton's interpreter, uses the first."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return triton.autotune(list(configs[:1] if interpreted else configs), **options)
'''

ALERT = '''
def alert_not_deterministic(name):
    """Raises or warns, as PyTorch does, if deterministic algorithms are required."""
    if torch.are_deterministic_algorithms_enabled():
        said = f"{name} has no deterministic implementation: it uses atomic operations"
        if not torch.is_deterministic_algorithms_warn_only_enabled():
            raise RuntimeError(f"{said}, and torch.use_deterministic_algorithms(True) is set")
        warnings.warn(said, stacklevel=2)
'''

IS_PLAIN = '''
def is_plain(*values):
    """Whether these are real tensors and numbers, not traced ones."""
    return all(type(value) in (torch.Tensor, torch.nn.Parameter, int) for value in values)
'''

IS_PLAIN_WITH_FLAGS = IS_PLAIN.replace("Parameter, int)", "Parameter, int, bool)")
"""A variant for operators with flags."""

OPERATOR = '''
def as_operator(name):
    """Registers a function as an operator, for torch.compile and other tracers.

    On plain tensors the function is called directly: the dispatcher takes longer.
    """

    def register(function):
        operator = custom_op(name, function, mutates_args=())
        operator.register_fake(function)

        @functools.wraps(function)
        def call(*args):
            if torch.compiler.is_compiling() or not is_plain(*args):
                return operator(*args)
            first = next(filter(torch.is_tensor, args), torch.Tensor())
            with torch.cuda.device_of(first):  # Triton launches on the current device
                return function(*args)

        return call

    return register
'''

OVERWRITING = '''
def as_operator(name, overwrites=()):
    """Registers a function as an operator, for torch.compile and other tracers.

    On plain tensors the function is called directly: the dispatcher takes longer.
    `overwrites` names the tensors that the function writes to.
    """

    def register(function):
        operator = custom_op(name, function, mutates_args=overwrites)
        operator.register_fake(function)
        parameters = list(inspect.signature(function).parameters)
        places = [parameters.index(parameter) for parameter in overwrites]

        @functools.wraps(function)
        def call(*args):
            if torch.compiler.is_compiling() or not is_plain(*args):
                return operator(*args)
            with torch.cuda.device_of(args[0]):  # Triton launches on the current device
                found = function(*args)
            torch.autograd.graph.increment_version([args[place] for place in places])
            return found

        return call

    return register
'''
"""A variant for a function that overwrites some of its arguments."""

COMPILED = '''
def compiled(function):
    """Returns a function that Inductor compiles, unless tensors are traced or interpreted."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    fast = function if interpreted else torch.compile(function, fullgraph=True)

    @functools.wraps(function)
    def call(*args):
        return (fast if is_plain(*args) else function)(*args)

    call.is_compiled = True
    return call
'''

LAUNCH = '''
def launch(kernel, grid):
    """Returns a function that launches a kernel; on traced tensors it does nothing."""

    def run(*args, **blocks):
        if not is_plain(*args):
            return
        if args[0].device.type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
            raise ValueError("the tensors are on the CPU: these kernels run on a GPU")
        kernel[grid](*args, **blocks)

    return run
'''

LAUNCH_WITH_OFFSETS = LAUNCH.replace(
    "        kernel[grid]",
    """        tensors = filter(torch.is_tensor, args)
        if "INDEX" in kernel.arg_names and any(t.numel() >= 2**31 for t in tensors):
            blocks["INDEX"] = tl.int64
        kernel[grid]""",
)
"""A variant for kernels whose offsets need 64 bits for large tensors."""

TMA = '''
def workspace(size, alignment, stream):
    """Memory for the TMA descriptors of the matrices that a kernel reads."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def multiprocessors(out):
    """The number of multiprocessors; each runs a program, which iterates over tiles."""
    if not out.is_cuda:
        return 1
    return torch.cuda.get_device_properties(out.device).multi_processor_count


def aligned(tensor):
    """Returns a tensor, or a copy of it, that starts at a multiple of 16 bytes, as TMA needs."""
    if not is_plain(tensor) or tensor.data_ptr() % 16 == 0:
        return tensor
    options = {"dtype": tensor.dtype, "device": tensor.device}
    return torch.empty_strided(tensor.shape, tensor.stride(), **options).copy_(tensor)
'''

CONSTANTS = '''
@functools.cache
def created_tensor(name, device):
    """Creates a tensor of CONSTANTS."""
    values, dtype = CONSTANTS[name]
    with torch.inference_mode(False):
        return torch.tensor(values, dtype=dtype, device=device)


def constant_tensor(name, device):
    """Returns a tensor of CONSTANTS, created once for each device or trace."""
    empty = torch.empty(0, device=device)
    create = created_tensor if is_plain(empty) else created_tensor.__wrapped__
    return create(name, empty.device)
'''

SETTINGS = '''
def check_settings(module, settings):
    """Raises if a module has other settings than the kernels were generated for."""
    for path, value in settings.items():
        found = functools.reduce(getattr, path.split("."), module)
        if found != value:
            raise ValueError(f"self.{path} is {value!r} in these kernels, not {found!r}")
'''

CHECK = '''
def check(tensor, name, dtype, shape, strides=None, device=None, gradient=True):
    """Raises if the kernels do not support a tensor; None means any value."""
    if not isinstance(tensor, torch.Tensor) or tensor.dtype != dtype:
        found = tensor.dtype if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise TypeError(f"{name} must be a tensor of {dtype}, not {found}")
    if tensor.shape != shape and (
        len(shape) != tensor.dim()
        or any(size is not None and size != found for size, found in zip(shape, tensor.shape))
    ):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name} must have the shape ({wanted}), not {tuple(tensor.shape)}")
    if strides is None and not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous: pass {name}.contiguous()")
    if strides is not None and any(
        stride is not None and stride != found
        for stride, found in zip(strides, tensor.stride())
    ):
        raise ValueError(f"{name} must have the strides {strides}, not {tensor.stride()}")
    if device is not None and tensor.device != device:
        raise ValueError(f"{name} must be on {device}, not on {tensor.device}")
    if not gradient and tensor.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{name} gets no gradient from these kernels: pass {name}.detach()")
'''
