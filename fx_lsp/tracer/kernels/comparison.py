"""Provide the common part of all generated files: it compares two functions, and times them."""

from __future__ import annotations

from collections.abc import Sequence

SHAKEN = '''
def shaken(module):
    """Return a copy of a module with slightly perturbed parameters and buffers."""
    copied = copy.deepcopy(module)
    with torch.no_grad():
        for tensor in (*copied.parameters(), *copied.buffers()):
            if tensor.is_floating_point():
                tensor.add_(torch.rand_like(tensor), alpha=0.1)
    return copied
'''

TENSORS = '''
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
'''

RESULTS = '''
def results(function, args, kwargs):
    """Return the results of a call, the gradients of its inputs, and the inputs that it changes.

    The gradients are computed from random gradients of all results.
    """
    bound = inspect.signature(KERNELS).bind(*args, **kwargs).arguments
    inputs = {n: t for name, value in bound.items() for n, t in tensors(value, name)}
    before = {name: tensor.detach().clone() for name, tensor in inputs.items()}
    leaves = {name: tensor for name, tensor in inputs.items() if tensor.requires_grad}
    out = [tensor for _, tensor in tensors(function(*args, **kwargs), "out")]
    values = {f"out[{n}]" if len(out) > 1 else "out": t for n, t in enumerate(out)}
    roots = {id(leaf) for leaf in leaves.values()}
    out = [t for t in out if t.requires_grad and (t.grad_fn or id(t) in roots)]
    if out and leaves:
        torch.manual_seed(0)
        gradients = [torch.randn(t.shape, dtype=torch.float64, device="cpu").to(t) for t in out]
        options = {"allow_unused": True, "materialize_grads": True}
        grads = torch.autograd.grad(out, list(leaves.values()), gradients, **options)
        for name, grad in zip(leaves, grads):
            values[f"gradient of {name}"] = grad
    for name, tensor in inputs.items():
        if not torch.equal(tensor, before[name]):
            values[f"{name} afterwards"] = tensor
    return values
'''

DOUBLED = '''
def doubled(value):
    """Return a floating-point tensor or module in float64, and anything else unchanged."""
    if isinstance(value, torch.nn.Module):
        return value.double()
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.detach().double().requires_grad_(value.requires_grad)
    return value
'''

COMPARE = '''
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
'''


WIDER = '''
class Wider(TorchDispatchMode):
    """Creates and casts tensors in float64 where the original uses fewer bits."""

    def __enter__(self):
        self.before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        return super().__enter__()

    def __exit__(self, *error):
        torch.set_default_dtype(self.before)
        return super().__exit__(*error)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") in (torch.float16, torch.bfloat16, torch.float32):
            kwargs["dtype"] = torch.float64
        return function(*args, **kwargs)
'''
"""The mode in which exact results are computed if the function chooses dtypes itself."""

COMPARE_WIDER = COMPARE.replace(
    """        try:
            exact = results(reference, *tree_map(doubled, make(seed)))
""",
    """        inputs = tree_map(doubled, make(seed))
        try:
            with Wider():
                exact = results(reference, *inputs)
""",
)
"""The comparison in that mode."""


_GPU_ONLY = """\
if device == "cpu":
    print("not compared with the original: OPERATION only runs on a GPU")
    sys.exit()
"""


def main(name: str, receiver: str, names: bool, outside: Sequence[str], on_gpu: str = "") -> list[str]:
    """Return the lines that compare the function `name` with the original, which is the method `receiver` if that is
    not "", and needs `names`; it reads the tensors `outside` itself. `on_gpu` names an operation that only runs on a
    GPU, or is "".
    """
    subject = "module" if receiver else "reference"
    arguments = ["seed", "device", *(["module"] if receiver else []), *(["names"] if names else [])]
    lines = [
        'device = "cuda" if torch.cuda.is_available() else "cpu"',
        *(_GPU_ONLY.replace("OPERATION", on_gpu).splitlines() if on_gpu else []),
        'if device == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":',
        '    sys.exit("no GPU is available: set TRITON_INTERPRET=1")',
        "with torch.device(device):",
        f"    {subject}{', names' if names else ''} = original()",
        *([f"reference = type(module).{receiver}"] if receiver else []),
    ]
    function = "reference"
    if outside:
        function = "without_further"
        further = ", ".join(outside)
        lines += [
            "",
            f"def without_further(*args, {further}, **kwargs):",
            "    return reference(*args, **kwargs)",
        ]
    return [
        *lines,
        "",
        "def drawn(seed):",
        f"    return arguments({', '.join(arguments)})",
        "",
        f"make = accepted({function}, drawn)",
        f"wrong = compare(KERNELS, {function}, make)",
        'if device == "cpu":',
        '    print("not timed: without a GPU, the kernels run in an interpreter")',
        "else:",
        "    ours = times(KERNELS, *make(0))",
        f"    theirs = times({function}, *make(0))",
        '    for what, mine, other in zip(("forward", "forward and backward"), ours, theirs):',
        '        print(f"{what}: {mine:.3f} ms, the original {other:.3f} ms")',
        "sys.exit(1 if wrong else 0)",
    ]
