"""Simulate tensors on a missing GPU: PyTorch's own fake tensors, whose device is hidden from C++.

A fake tensor knows its device, and PyTorch's rules for devices apply to it: operands on two devices are an error,
`autocast("cuda")` casts, results are on the device of the operands. But autograd asks C++ for the device of a tensor,
and then for that device's streams: without the GPU that raises, or ends the process. Here Python sees the device, and
C++ sees `meta:0` for `cuda:0`; tensors that C++ creates there, like an operand, belong on `cuda:0`. Nothing else
numbers meta devices.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FrameType
from typing import Any
from unittest import mock

import torch
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.backends import cuda
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

from fx_lsp.tracer.compat import FakeTensor, FakeTensorMode, unwrapped
from fx_lsp.tracer.program.gpu.autocast import FakeAutocast
from fx_lsp.tracer.program.gpu.tensor_types import TYPES, name_of_type, named_type
from fx_lsp.tracer.program.gpu.torch_cuda import idle_gpu

_KINDS = ("cuda", "xpu")
FAKE_KINDS = frozenset(_KINDS)
"""The types of devices that tensors can be on without the device."""
_MOVES = {kind: getattr(torch.Tensor, kind) for kind in FAKE_KINDS if hasattr(torch.Tensor, kind)}
_STRIDE = 32
"""The difference between the numbers of meta devices for one type of devices and for the next."""
_DISPATCH_DEVICE = 10
"""The position of the argument of that name in `_make_wrapper_subclass` after the class."""
_DISPATCH = "__torch_dispatch__"
_DEVICE_OF = torch.ops.prim.device.default


class FakeGpu(TorchFunctionMode):
    """Allow tensors on missing devices; `kinds` collects the types of those that the code names.

    `available` is the answer to code that asks for a GPU; `denied` is True once the answer was no, and `wanted` once it
    asked which GPU there is.
    """

    def __init__(self, mode: FakeTensorMode, available: bool) -> None:
        super().__init__()
        self._mode = mode
        self.available = available
        self.denied = self.wanted = False
        self.kinds: set[str] = set()
        self._heard = False
        self._wrappers = WeakTensorKeyDictionary()
        self._autocasts = {kind: FakeAutocast(kind, self._hearing, self._is_fake) for kind in FAKE_KINDS}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options: dict[str, Any] = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__":
            return self._property(func, args)
        if func is torch.Tensor.get_device and (device := self.fake_device(args[0])) is not None:
            return device.index
        if func is torch.Tensor.type and (wanted := self._typed(args, options)) is not None:
            return wanted
        if func is torch.device:
            return func(*args, **options)
        if func is torch.Tensor.pin_memory:
            return args[0]
        if name in _MOVES and func is _MOVES[name]:
            func, args, options = torch.Tensor.to, *_moved(name, *args, **options)
        return self._placed(func, *self._with_indices(func, args, options))

    def _typed(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return the type of a tensor on a fake device, or a tensor converted to a GPU type; None for others."""
        wanted = args[1] if len(args) > 1 else kwargs.get("dtype")
        if wanted is None:
            return name_of_type(args[0]) if self._is_fake(args[0]) else None
        kind = named_type(wanted)
        return None if kind is None else args[0].to(self._numbered("cuda"), kind.dtype)

    def _placed(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function whose devices are objects, avoiding C++ code that accesses them."""
        if func in _FROM_DATA:
            device = kwargs.get("device") or (self.fake_device(args[0]) if func is torch.Tensor.new_tensor else None)
            if isinstance(device, torch.device) and device.type in FAKE_KINDS:
                return self._made_from_data(device, args, kwargs)
        if func is torch.Tensor.to and self._is_there(args, kwargs):
            args, kwargs = _without_device(args, kwargs)
            if len(args) == 1 and not kwargs:
                return args[0]
        if func is scaled_dot_product_attention and args and self._is_fake(args[0]):
            func = _attention
        places = any(_is_fake_device(a) for a in (*args[1:], *kwargs.values()))
        if not places or any(isinstance(mode, FakeTensorMode) for mode in _get_current_dispatch_mode_stack()):
            return func(*args, **kwargs)
        with self._mode:  # tensors that code puts on a missing device have no values
            return func(*args, **kwargs)

    def _made_from_data(self, device: torch.device, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
        """Return a tensor of plain values or of another tensor on a fake device, which C++ would copy there itself."""
        options = {k: a for k, a in kwargs.items() if k not in ("device", "requires_grad", "pin_memory")}
        tensor = torch.asarray(args[-1] if args else options.pop("data"), **options).to(device)
        return tensor.requires_grad_() if kwargs.get("requires_grad") else tensor

    def _is_fake(self, tensor: torch.Tensor) -> bool:
        return self.fake_device(tensor) is not None

    @contextmanager
    def _hearing(self) -> Generator[None, None, None]:
        """Show fake devices to C++ inside: nothing may be differentiated there."""
        self._heard = True
        try:
            yield
        finally:
            self._heard = False

    def fake_device(self, tensor: torch.Tensor) -> torch.device | None:
        """Return the device of a tensor if it is a missing one, else None."""
        device = self.device_of(tensor)
        return device if device.type in FAKE_KINDS else None

    def device_of(self, tensor: torch.Tensor) -> torch.device:
        """Return the device of a tensor as Python sees it."""
        if isinstance(tensor, FakeTensor):
            return tensor.fake_device
        if (device := self._wrappers.get(tensor)) is not None:
            return device
        inner = unwrapped(tensor)
        return shown(tensor.device) if inner is None else self.device_of(inner)

    def _property(self, func: Any, args: tuple[Any, ...]) -> Any:
        """Return a property of a tensor that may depend on its device."""
        of = getattr(getattr(func, "__self__", None), "__name__", "")
        if not args or of not in _PROPERTIES or (device := self.fake_device(args[0])) is None:
            return func(*args)
        return _PROPERTIES[of](device)

    def _is_there(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return True if a tensor is moved to the fake device that it is already on, without a copy."""
        device = next((a for a in (*args[1:2], kwargs.get("device")) if isinstance(a, torch.device)), None)
        copies = kwargs.get("copy", False) or any(a is True for a in args[4:])
        return (
            device is not None
            and not copies
            and isinstance(args[0], torch.Tensor)
            and device == self.fake_device(args[0])
        )

    def _with_indices(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return arguments whose devices are objects with an index: C++ would query the device for it."""
        if func is torch.Tensor.to and len(args) > 1 and isinstance(args[1], (str, int)):
            args = (args[0], self._numbered(args[1]), *args[2:])
        elif any(isinstance(a, torch.device) for a in args):
            args = tuple(self._numbered(a) if isinstance(a, torch.device) else a for a in args)
        if kwargs.get("device") is not None:
            kwargs = {**kwargs, "device": self._numbered(kwargs["device"])}
        return args, kwargs

    def _numbered(self, device: Any) -> Any:
        if not isinstance(device, (str, int, torch.device)) or isinstance(device, bool):
            return device  # a proxy of torch.fx
        try:
            whole = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        except (RuntimeError, TypeError):
            return device
        if whole.type not in FAKE_KINDS:
            return device
        self.kinds.add(whole.type)
        return torch.device(whole.type, whole.index or 0)

    # Questions and tensors of C++

    @contextmanager
    def hidden(self) -> Generator[None, None, None]:
        """Hide fake devices from C++ inside."""
        with ExitStack() as stack:
            for owner, name, value in self._stand_ins(stack):
                stack.enter_context(mock.patch.object(owner, name, value))
            if (own := self._mode.__dict__.get("dispatch")) is not None:
                stack.enter_context(mock.patch.dict(self._mode.__dict__, {"dispatch": partial(self._dispatched, own)}))
            for of, answer in _PROPERTIES.items():
                for cls in (FakeTensor, FunctionalTensor):
                    if of != "device" or cls is FunctionalTensor:
                        stack.enter_context(mock.patch.object(cls, of, self._as_property(of, answer), create=True))
            stack.enter_context(idle_gpu())
            for autocast in self._autocasts.values():
                stack.callback(autocast.remove)
            yield

    def _stand_ins(self, stack: ExitStack) -> list[tuple[Any, str, Any]]:
        """Return the functions that are replaced while fake devices are hidden from C++, with their owners and
        names.
        """
        of_mode, of_class = FakeTensorMode.dispatch, FakeTensor.__dict__["__torch_dispatch__"].__func__
        functions: Any = getattr(torch._C, "_nn")  # noqa: B009
        parse, is_available = functions._parse_to, torch.amp.autocast_mode.is_autocast_available

        def dispatch(mode: Any, *call: Any) -> Any:
            return self._dispatched(partial(of_mode, mode), *call)

        def dispatch_class(cls: type, *call: Any) -> Any:
            return self._dispatched(partial(of_class, cls), *call)

        def parse_to(*args: Any, **kwargs: Any) -> Any:
            return parse(*(self._numbered(a) if type(a) is int else a for a in args), **kwargs)

        def autocast_available(kind: str) -> bool:
            if kind in self._autocasts:
                self._autocasts[kind].install()
            return is_available(kind)

        return [
            (FakeTensorMode, "dispatch", dispatch),
            (FakeTensorMode, "avoid_device_init", True),
            (FakeTensor, "__torch_dispatch__", classmethod(dispatch_class)),
            (FunctionalTensorMode, "__torch_dispatch__", self._answering(FunctionalTensorMode.__torch_dispatch__)),
            (torch.Tensor, "_make_wrapper_subclass", staticmethod(self._wrapping(stack))),
            (torch.amp.autocast_mode, "is_autocast_available", autocast_available),
            (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
            (functions, "_parse_to", parse_to),
            (torch.cuda, "is_available", self._is_available),
            *((torch.cuda, name, kind) for name, kind in TYPES.items()),
            *self._of_accelerator(),
        ]

    def _of_accelerator(self) -> list[tuple[Any, str, Any]]:
        """Return the answers of `torch.accelerator`, if this PyTorch has it."""
        accelerator = getattr(torch, "accelerator", None)
        answers: dict[str, Any] = {
            "is_available": self._is_available,
            "current_accelerator": self._current_accelerator,
            "device_count": lambda: int(self._is_available()),
            "current_device_index": lambda: 0,
            "current_device_idx": lambda: 0,
            "set_device_index": lambda device: None,
            "set_device_idx": lambda device: None,
            "synchronize": lambda device=None: None,
        }
        return [(accelerator, name, answer) for name, answer in answers.items() if hasattr(accelerator, name)]

    def _current_accelerator(self, check_available: bool = False) -> torch.device | None:
        """Return the GPU, if there is one; code of the user that asks for it expects a machine with one."""
        if _is_of_torch(sys._getframe(1)):
            return None
        self.wanted = True
        return torch.device("cuda") if self._answered() else None

    def _dispatched(self, dispatch: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation on fake tensors, or report a tensor's device to C++."""
        if func is _DEVICE_OF and self._hides(args[0]):
            return hidden_device(args[0].fake_device)
        is_of_wrapper = func is _DEVICE_OF and not isinstance(args[0], FakeTensor)
        if is_of_wrapper and (device := self.fake_device(args[0])) is not None:
            return device if self._heard else hidden_device(device)
        return dispatch(func, types, *_with_shown(args, kwargs or {}))

    def _wrapping(self, stack: ExitStack) -> Callable[..., Any]:
        """Return a replacement of `_make_wrapper_subclass` whose wrappers on fake devices report their device
        themselves.
        """
        make_wrapper = torch.Tensor._make_wrapper_subclass
        answering: set[type] = set()

        def make(cls: type, *args: Any, **kwargs: Any) -> Any:
            device = next((shown(a) for a in (*args, *kwargs.values()) if isinstance(a, torch.device)), None)
            if device is None or device.type not in FAKE_KINDS:
                return make_wrapper(cls, *args, **kwargs)
            args = tuple(device if isinstance(a, torch.device) else a for a in args)
            kwargs = {k: device if isinstance(a, torch.device) else a for k, a in kwargs.items()}
            if len(args) > _DISPATCH_DEVICE:
                args = (*args[:_DISPATCH_DEVICE], True, *args[_DISPATCH_DEVICE + 1 :])
            else:
                kwargs["dispatch_device"] = True
            if cls not in answering:
                answering.add(cls)
                dispatch = next(vars(c)[_DISPATCH] for c in cls.__mro__ if _DISPATCH in vars(c))
                stack.enter_context(mock.patch.object(cls, _DISPATCH, self._answering(dispatch)))
            wrapper = make_wrapper(cls, *args, **kwargs)
            self._wrappers[wrapper] = device
            return wrapper

        return make

    def _answering(self, dispatch: Any) -> Any:
        """Return a `__torch_dispatch__` for a class of wrappers that reports their device."""

        def answer(receiver: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is _DEVICE_OF and (device := self.fake_device(args[0])) is not None:
                return device if self._heard else hidden_device(device)
            return (
                dispatch.__get__(None, receiver)(func, types, args, kwargs)
                if isinstance(dispatch, (classmethod, staticmethod))
                else dispatch(receiver, func, types, args, kwargs)
            )

        return classmethod(answer) if isinstance(dispatch, classmethod) else answer

    def _as_property(self, of: str, answer: Callable[[torch.device], Any]) -> property:
        inherited: Any = getattr(torch.Tensor, of)

        def get(tensor: torch.Tensor) -> Any:
            device = self.fake_device(tensor) if not _in_kernel(tensor) else None
            return inherited.__get__(tensor) if device is None else answer(device)

        return property(get)

    def _is_available(self) -> bool:
        """Return the answer to the user's code; PyTorch itself would use a GPU for other things than tensors."""
        return not _is_of_torch(sys._getframe(1)) and self._answered()

    def _answered(self) -> bool:
        """Return the answer to the user's code, and note what it was."""
        self.denied = self.denied or not self.available
        return self.available

    def _hides(self, tensor: Any) -> bool:
        return not self._heard and isinstance(tensor, FakeTensor) and tensor.fake_device.type in FAKE_KINDS


def _is_of_torch(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__", "").partition(".")[0] == "torch"


_PROPERTIES: dict[str, Callable[[torch.device], Any]] = {
    "device": lambda device: device,
    "is_cuda": lambda device: device.type == "cuda",
    "is_xpu": lambda device: device.type == "xpu",
    "is_cpu": lambda device: False,
    "is_meta": lambda device: False,
}


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Call attention as on a recent GPU: C++ queries the device for its capabilities."""
    kind, width = query.device.type, query.shape[-1]
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else query.dtype
    fits = query.dim() == key.dim() == value.dim() == 4 and width == value.shape[-1] and width % 8 == 0
    fits = fits and attn_mask is None
    if fits and dtype in (torch.float16, torch.bfloat16) and width <= 256 and cuda.flash_sdp_enabled():
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        return flash(query, key, value, dropout_p, is_causal, scale=scale)[0]
    fits = fits and dtype is query.dtype is not torch.float64 and not enable_gqa
    if fits and cuda.mem_efficient_sdp_enabled():
        keeps = any(t.requires_grad for t in (query, key, value)) and torch.is_grad_enabled()
        efficient = torch.ops.aten._scaled_dot_product_efficient_attention
        return efficient(query, key, value, None, keeps, dropout_p, is_causal, scale=scale)[0]
    grouped = {"enable_gqa": True} if enable_gqa else {}
    return scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **grouped)


gpu_attention: Callable[..., torch.Tensor] = _attention

_FROM_DATA = frozenset({torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor})


def _is_fake_device(value: Any) -> bool:
    return isinstance(value, torch.device) and value.type in FAKE_KINDS


def _in_kernel(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, FakeTensor) and tensor.fake_mode.in_kernel_invocation


def hidden_device(device: torch.device) -> torch.device:
    """Return the device that C++ sees in place of a missing one."""
    return torch.device("meta", _KINDS.index(device.type) * _STRIDE + device.index)


def shown(device: torch.device) -> torch.device:
    """Return the device that a meta device represents."""
    if device.type != "meta" or str(device) == "meta":
        return device
    return torch.device(_KINDS[device.index // _STRIDE], device.index % _STRIDE)


def _with_shown(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return arguments with the devices that their meta devices represent."""
    if not any(isinstance(a, torch.device) and a.type == "meta" for a in (*args, *kwargs.values())):
        return args, kwargs
    return tree_map_only(torch.device, shown, (args, kwargs))


def _moved(kind: str, tensor: Any, device: Any = None, non_blocking: bool = False, **rest: Any) -> tuple[Any, Any]:
    """Return the arguments of `to` for those of `cuda` and the like."""
    index = device if isinstance(device, int) else torch.device(device or kind).index
    return (tensor, torch.device(kind, index or 0)), {"non_blocking": non_blocking, **rest}


def _without_device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    rest = {k: a for k, a in kwargs.items() if k not in ("device", "non_blocking")}
    return tuple(a for a in args[:3] if not isinstance(a, (torch.device, bool))), rest


def name_devices(graph: torch.fx.Graph) -> None:
    """Replace meta devices in the arguments of operations by the devices that they represent."""
    for node in graph.nodes:
        node.args, node.kwargs = _with_shown(node.args, node.kwargs)
