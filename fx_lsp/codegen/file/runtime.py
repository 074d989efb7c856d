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
def is_plain(*values, plain=frozenset([torch.Tensor, torch.nn.Parameter, int, bool])):
    """Whether these are real tensors and numbers, not traced ones."""
    return {type(value) for value in values} <= plain
'''

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
            is_traced = torch.compiler.is_compiling() or not is_plain(*args)
            return (operator if is_traced else function)(*args)

        return call

    return register
'''

OVERWRITING = (
    OPERATOR.replace("(name):", "(name, overwrites=()):")
    .replace("longer.\n", "longer.\n    `overwrites` names the tensors that the function writes to.\n")
    .replace("mutates_args=()", "mutates_args=overwrites")
    .replace("(function)\n\n", "(function)\n        names = list(inspect.signature(function).parameters)\n\n")
    .replace(
        "            return (",
        """            if not is_traced:
                written = [args[names.index(name)] for name in overwrites]
                torch.autograd.graph.increment_version(written)
            return (""",
    )
)
"""A variant for a function that overwrites some of its arguments."""

COMPILED = '''
def compiled(function):
    """Returns a function that Inductor compiles, unless tensors are traced or interpreted."""
    from torch._inductor import inductor_prims  # noqa: F401 - it registers operations

    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    fast = function if interpreted else torch.compile(function, fullgraph=True)

    @functools.wraps(function)
    def call(*args):
        return (fast if is_plain(*args) else function)(*args)

    call.is_compiled = True
    return call
'''

LAUNCH = '''
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
'''

LAUNCH_WITH_OFFSETS = (
    LAUNCH.replace("*blocks.values()], []", "*blocks.values()], []\n    large = False")
    .replace(
        "        values.append(value)",
        "        large = large or (value is not arg and arg.numel() >= 2**31)\n        values.append(value)",
    )
    .replace(
        "    key = tuple(key)\n",
        """    if large and "INDEX" in kernel.arg_names:
        blocks["INDEX"] = tl.int64
        key.append(large)
    key = tuple(key)
""",
    )
)
"""A variant for kernels whose offsets need 64 bits for large tensors."""

TMA = '''
def workspace(size, alignment, stream):
    """Memory for the TMA descriptors of the matrices that a kernel reads."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


@functools.cache
def multiprocessors(device):
    """The number of multiprocessors; each runs a program, which iterates over tiles."""
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count


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
                named = sizes.setdefault(size, actual) if isinstance(size, str) else size
                wanted.append(actual if named is None else named)
            wanted = (*wanted, *shape[tensor.dim() :])
            if tensor.shape != wanted:
                raise ValueError(f"{name} must have the shape {wanted}, not {tuple(tensor.shape)}")
        if tensor.device != device:
            raise ValueError(f"{name} must be on {device}, not on {tensor.device}")
        if not gradient and tensor.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"{name} gets no gradient from these kernels: pass {name}.detach()")
        if strides is None and not tensor.is_contiguous():
            if not copied:
                raise ValueError(f"{name} must be contiguous: a result overwrites or views it")
            tensor = tensor.contiguous()
        accepted.append(tensor)
    return accepted
'''

_COPIES = """\
        strides = strides and tuple([sizes.get(stride, stride) for stride in strides])
        layout = zip(tensor.shape, strides or (), tensor.stride())
        if any(size != 1 and stride not in (None, actual) for size, stride, actual in layout):
            if not copied:
                raise ValueError(f"{name} must have the strides {strides}, not {tensor.stride()}")
            tensor = torch.empty_strided(tensor.shape, strides, dtype=dtype, device=device).copy_(tensor)
        accepted.append(tensor)
"""

CHECK_STRIDES = CHECK.replace("        accepted.append(tensor)\n", _COPIES)
"""A variant for files with inputs that are not contiguous."""
