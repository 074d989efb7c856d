"""Convert any callable with its arguments to a call on fake tensors for AOTAutograd."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import torch
import torch._dynamo
from torch._guards import detect_fake_mode
from torch.fx.experimental.symbolic_shapes import StatelessSymbolicContext
from torch.nn.parameter import is_lazy

from fx_lsp.tracer.capture.decompositions import find_table
from fx_lsp.tracer.capture.graphs import Names
from fx_lsp.tracer.compat import DimDynamic, FakeTensor, FakeTensorMode
from fx_lsp.tracer.library.origin import Origin, SessionSources, module_of, origin_of, parameter_names, uncompiled
from fx_lsp.tracer.library.stand_ins import StandIns
from fx_lsp.tracer.run.call import Call, substitute, tensors_in
from fx_lsp.tracer.run.callables import innermost
from fx_lsp.tracer.run.conditions import Conditions, under
from fx_lsp.tracer.run.context import context_here
from fx_lsp.tracer.run.fakes import fake_mode
from fx_lsp.tracer.run.state import replaced
from fx_lsp.tracer.run.values.symbols import Symbols
from fx_lsp.tracer.source.names import assigned_names, identifier, returned_names
from fx_lsp.tracer.source.provenance import Sources


@dataclass(frozen=True)
class Options:
    """Hold the options of a trace; the public functions document each."""

    requires_grad: Sequence[bool] | None = None
    decompositions: Mapping[Any, Callable[..., Any]] | Literal["core"] | None = None
    static_argnums: Sequence[int] = ()
    dynamic: bool = False
    partition_fn: Callable[..., Any] | None = None

    def table(self) -> dict[Any, Callable[..., Any]] | None:
        """Return the decompositions by overload. Raises ValueError for an unknown name."""
        if self.decompositions is None:
            return None
        if isinstance(self.decompositions, str):
            if self.decompositions != "core":
                raise ValueError(f'decompositions must be a table, "core" or None, not {self.decompositions!r}')
            return find_table("core")
        table: dict[Any, Callable[..., Any]] = {}
        for op, function in self.decompositions.items():
            overloads = (
                [getattr(op, n) for n in op.overloads()] if isinstance(op, torch._ops.OpOverloadPacket) else [op]
            )
            table.update(dict.fromkeys(overloads, function))
        return table


@dataclass
class Fakes:
    """Hold a fake tensor for each input. A tensor passed twice with the same `requires_grad` is one fake tensor as
    well.
    """

    mode: FakeTensorMode
    symbols: Symbols | None
    _by_key: dict[tuple[int, bool], torch.Tensor] = field(default_factory=dict[tuple[int, bool], torch.Tensor])

    def of(self, name: str, tensor: torch.Tensor, requires_grad: bool, is_held: bool) -> torch.Tensor:
        """Return the fake of a tensor, without its history.

        It shares memory with the fakes of tensors that share memory with `tensor`. A tensor that does not itself
        require a gradient is not a leaf, so that it may be written into, like an activation.
        """
        key = id(tensor), requires_grad
        if key not in self._by_key:
            fake = tensor if isinstance(tensor, FakeTensor) else self._fake(name, tensor, is_held)
            # unlike detach(), `data` has a separate version counter
            fake = fake.clone() if fake.is_inference() else fake.data
            if requires_grad:
                fake.requires_grad_()
                if not (tensor.requires_grad and tensor.is_leaf):
                    fake = cast("torch.Tensor", _Activation.apply(fake))
            self._by_key[key] = fake
        return self._by_key[key]

    def _fake(self, name: str, tensor: torch.Tensor, is_held: bool) -> torch.Tensor:
        if self.symbols is None or is_held:
            return self.mode.from_tensor(tensor, static_shapes=True)
        dims = [DimDynamic.STATIC if size in (0, 1) else DimDynamic.DYNAMIC for size in tensor.shape]
        fake = self.mode.from_tensor(tensor, symbolic_context=StatelessSymbolicContext(dims))
        for i, (size, real) in enumerate(zip(fake.shape, tensor.shape, strict=True)):
            if isinstance(size, torch.SymInt):
                self.symbols.named[size.node.expr] = f"{identifier(name)}_{i}"
                self.symbols.hints[f"{identifier(name)}_{i}"] = real
        return fake


class _Activation(torch.autograd.Function):
    """Return the same tensor as the result of an operation."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0]


@dataclass
class FakeCall:
    """Hold a callable that can be captured, once inside of `tracing`.

    `apart` are the positions of results that share memory with an input or another result: they are cloned so that each
    has its own gradient.
    """

    call: Call
    origin: Origin
    sources: Sources
    mode: FakeTensorMode
    conditions: Conditions
    stand_ins: StandIns
    fakes: Fakes
    apart: set[int] = field(default_factory=set[int])

    @property
    def symbolic(self) -> bool:
        """Return True if sizes are symbols, or may become some."""
        return self.mode.shape_env is not None or self.conditions.symbols is not None

    def names(self) -> Names:
        """Return fresh names for the nodes of one capture."""
        returned = returned_names(self.origin.tree, self.origin.definition)
        return Names(self.sources, {self.origin.file: self.origin.tree}, returned)

    @contextmanager
    def refusing_shared_writes(self) -> Generator[None, None, None]:
        """Raise ValueError if the code inside writes into an input that shares memory with another one."""
        every = [*(held.tensor for held in self.call.held()), *(tensor for _, tensor in self.call.arguments())]
        different = {id(tensor): tensor for tensor in every}.values()
        places = Counter(memory(tensor) for tensor in different)
        shared = [(tensor, tensor._version) for tensor in different if places[memory(tensor)] > 1]
        yield
        if any(tensor._version != version for tensor, version in shared):
            raise ValueError(
                "no graph was captured: the code writes into inputs that share memory; pass clones of them"
            )

    @contextmanager
    def lifted(self, touched: frozenset[int]) -> Generator[None, None, None]:
        """Make the real tensors with those ids, which the code reads itself, inputs as well, inside."""
        self.call.touched = touched
        lifted = [held for held in self.call.held() if id(held.tensor) in touched]
        fakes = [self.fakes.of(h.name, h.tensor, h.tensor.requires_grad, True) for h in lifted]
        self.call.touched = frozenset(map(id, fakes))
        with replaced(lifted, iter(fakes)):
            yield


@contextmanager
def tracing(
    fn: Callable[..., Any], example_inputs: Sequence[Any], options: Options, differentiate: bool, rehearsed: bool
) -> Generator[FakeCall, None, None]:
    """Yield the call of `fn`, whose modules hold fake tensors inside; afterwards everything is restored.

    It must run once, in its `mode`, before a `rehearsed` one may be captured.

    Raises ValueError if inputs and options do not fit together.
    """
    if not isinstance(cast("Any", example_inputs), (list, tuple)):
        raise ValueError(f"example_inputs must be a list or tuple of arguments, not {type(example_inputs).__name__}")
    fn = uncompiled(fn)
    origin = origin_of(fn)
    static = _static_positions(options.static_argnums, len(example_inputs))
    dynamic = [i for i in range(len(example_inputs)) if i not in static]
    module, names = module_of(fn), parameter_names(fn, len(example_inputs))
    call = Call(
        fn,
        tuple(example_inputs[i] for i in dynamic),
        modules={"": module} if module is not None else {},
        parameter_names=tuple(names[i] for i in dynamic),
        context=replace(context_here(), grad="grad" if differentiate else "no_grad"),
    )
    held, arguments = call.held(), list(call.arguments())
    if any(is_lazy(item.tensor) for item in held):
        raise ValueError(f"{origin.name} has uninitialized parameters: call it once on real tensors first")
    sources = SessionSources(origin)
    every = [*(item.tensor for item in held), *(tensor for _, tensor in arguments)]
    flags = _flags(call, options.requires_grad, static) if differentiate else {}
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.set_grad_enabled(differentiate))
        stack.enter_context(_as_written())
        mode = _mode_of(every, origin, sources, options.dynamic)
        before, mode.allow_non_fake_inputs = mode.allow_non_fake_inputs, True
        stack.callback(setattr, mode, "allow_non_fake_inputs", before)
        symbols = mode.shape_env if isinstance(mode.shape_env, Symbols) else None
        fakes = Fakes(mode, symbols)
        fake_call = FakeCall(call, origin, sources, mode, Conditions(symbols), StandIns(mode, rehearsed), fakes)
        stack.enter_context(under(mode, fake_call.conditions))
        inside = [fakes.of(h.name, h.tensor, differentiate and h.tensor.requires_grad, True) for h in held]
        outside = [fakes.of(path, t, flags.get(path, False), False) for path, t in arguments]
        supply = iter(outside)
        call.args = tuple(substitute(value, supply) for value in call.args)
        fixed = {i: example_inputs[i] for i in static}
        call.function = _with_static(fn, fixed, fake_call.stand_ins)
        stack.enter_context(replaced(held, iter(inside)))
        yield fake_call


@contextmanager
def _as_written() -> Generator[None, None, None]:
    """Run code under `torch.compile` as written inside."""
    with torch.compiler.set_stance("force_eager"), torch._dynamo.config.patch(error_on_nested_fx_trace=False):
        yield


def with_results_apart(fake_call: FakeCall) -> Call:
    """Return the call with a clone of each result that shares memory; the results must be tensors in lists or tuples.

    AOTAutograd computes no separate gradient for a view of an input: autograd would replay the view outside of the
    graph.
    """
    call, apart = fake_call.call, fake_call.apart

    def function(*args: Any) -> Any:
        result = call.function(*args)
        check_result(result, fake_call.origin.name)
        apart.clear()
        results = [tensor for _, tensor in tensors_in(result, "")]
        inputs = [*(h.tensor for h in call.held()), *(tensor for _, tensor in tensors_in(args, ""))]
        in_use = {memory(tensor) for tensor in inputs}
        for index, tensor in enumerate(results):
            if tensor.requires_grad and memory(tensor) in in_use:
                apart.add(index)
                results[index] = tensor.clone()
            in_use.add(memory(tensor))
        return substitute(result, iter(results))

    return replace(call, function=function)


def check_result(result: Any, name: str) -> None:
    """Raise ValueError for a result that is not a tensor, list or tuple, or that contains no tensor."""
    if not isinstance(result, (torch.Tensor, list, tuple)):
        raise ValueError(f"{name} returns {_a(type(result))}: return a tensor, or a list or tuple of tensors")
    if not any(True for _ in tensors_in(result, "")):
        raise ValueError(
            f"no graph was captured: there is no tensor in the {type(result).__name__} that {name} returns"
        )


def memory(tensor: torch.Tensor) -> int:
    """Return the same number for tensors that share memory."""
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else id(tensor)


def _a(kind: type) -> str:
    return "None" if kind is type(None) else f"{'an' if kind.__name__[0] in 'aeiou' else 'a'} {kind.__name__}"


def _with_static(fn: Callable[..., Any], fixed: Mapping[int, Any], stand_ins: StandIns) -> Callable[..., Any]:
    """Return `fn` as a function of the other arguments, with stand-ins for the real tensors that it reads itself."""

    def function(*args: Any) -> Any:
        rest = iter(args)
        total = range(len(args) + len(fixed))
        with stand_ins:
            return fn(*(fixed[i] if i in fixed else next(rest) for i in total))

    plain = innermost(fn)
    function.__dict__["__wrapped__"] = plain
    receiver = getattr(fn, "__self__", None)
    if receiver is not None:
        function.__dict__["__self__"] = receiver
    return function


def _mode_of(tensors: list[torch.Tensor], origin: Origin, sources: Sources, dynamic: bool) -> FakeTensorMode:
    try:
        mode = detect_fake_mode(tensors)
    except AssertionError as error:
        raise ValueError("the fake tensors among the inputs belong to different modes") from error
    if mode is None and dynamic:
        assigned = assigned_names(origin.tree, origin.file)
        mode = fake_mode()
        mode.shape_env = Symbols(sources, list(origin.lines), assigned, unbacked=True)
        mode.static_shapes = False
    return mode or fake_mode()


def _flags(call: Call, wanted: Sequence[bool] | None, static: frozenset[int]) -> dict[str, bool]:
    """Return, by path, whether each tensor among the arguments requires a gradient."""
    groups = [list(tensors_in(value, name)) for name, value in zip(call.parameter_names, call.args, strict=True)]
    if wanted is not None:
        count = len(groups) + len(static)
        if len(wanted) != count:
            raise ValueError(f"requires_grad has {len(wanted)} values for {count} example inputs: pass one for each")
        flags = [bool(flag) for i, flag in enumerate(wanted) if i not in static]
        for name, group, flag in zip(call.parameter_names, groups, flags, strict=True):
            if flag and not any(_can_require_grad(tensor) for _, tensor in group):
                raise ValueError(
                    f"requires_grad is true for {name}, which is not a dense floating-point or complex tensor"
                )
        if any(wanted[i] for i in static):
            raise ValueError("requires_grad is true for an argument of static_argnums, which is a constant")
        return {
            path: flag and _can_require_grad(tensor)
            for group, flag in zip(groups, flags, strict=True)
            for path, tensor in group
        }
    return {path: _can_require_grad(tensor) for group in groups for path, tensor in group}


def _can_require_grad(tensor: torch.Tensor) -> bool:
    """Return True if AOTAutograd computes its gradient; it computes none for sparse tensors."""
    return (tensor.is_floating_point() or tensor.is_complex()) and tensor.layout is torch.strided


def _static_positions(numbers: Sequence[int], count: int) -> frozenset[int]:
    for number in numbers:
        if not -count <= number < count:
            raise ValueError(f"static_argnums has {number}, but there are {count} example inputs")
    return frozenset(number % count for number in numbers)
