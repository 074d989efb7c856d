"""Give datasets that are not on the disk samples of their own kind, which go through the user's transforms.

`datasets.json` states the samples of the classes of packages, with sources. `DatasetSamples.value` lists the
kinds of values.
"""

from __future__ import annotations

import importlib
import importlib.abc
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, wraps
from io import BytesIO
from operator import attrgetter
from types import ModuleType
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.data import Dataset

from fx_lsp.tracer.compat import FakeTensor
from fx_lsp.tracer.notes import notes

GUESSED_SIZES = (500, 375), (320, 480)
"""Widths and heights of images whose size no one states: that of the samples, and another to compare with."""
GUESSED_LENGTH, GUESSED_CLASSES = 1000, 10
MAX_PARTS = 16
"""The most datasets that are looked at in one, and in a list of its."""
_SAMPLES = " samples"
"""The attribute of a dataset with its `DatasetSamples`. Identifiers of the user have no leading space."""

Facts = Mapping[str, Any]


@lru_cache(1)
def table() -> Mapping[str, Facts]:
    """Return the facts on datasets, by the qualified names of their classes, and of functions that return one."""
    with open(os.path.join(os.path.dirname(__file__), "datasets.json"), encoding="utf-8") as file:
        packages = json.load(file)
    return {
        f"{package}.{name}": {"source": facts["source"], **facts.get("all", {}), **own}
        for package, facts in packages.items()
        for name, own in facts["sets"].items()
    }


@dataclass
class DatasetSamples:
    """The samples of one dataset, of which some `facts` are known; `arguments` are those of its constructor."""

    name: str
    facts: Facts
    arguments: Mapping[str, Any]
    guessed_size: tuple[int, int] = GUESSED_SIZES[0]
    guesses: dict[str, int] = field(default_factory=dict[str, int])
    is_noted: bool = False

    @property
    def length(self) -> int:
        """Return the number of samples, which is a guess where it is not documented."""
        return self.value(self.facts.get("length", GUESSED_LENGTH))

    def value(self, stated: Any, index: int = 0) -> Any:
        """Return a new value for the sample at an index. Raises KeyError where the table has none for the arguments.

        A list is a tuple of values. A dictionary is of the kind that its first key names; sizes of "N" are the length:

            {"by": "train", "True": …, "": …}         what an argument selects; "" for all others
            {"image": "RGB", "size": [32, 32]}        a PIL image; its size is a guess if no one states it
            {"label": 10, "from": 1}                  an integer
            {"tensor": "uint8", "shape": ["N", 28]}   zeros, or numbers "below" one; {"array": …} is one of NumPy
            {"names": 10}, {"numbers": 10}            names, and numbers by name; how many is a guess if it is null
            {"list": …}, {"cycle": […]}, {"dict": {…}}, {"call": "module:name", …}
            {"splits": {"train": 100}, "columns": {…}, "features": {…}}
        """
        if isinstance(stated, list):
            return tuple(self.value(part, index) for part in stated)
        return getattr(self, f"_{next(iter(stated))}")(index, **stated) if isinstance(stated, dict) else stated

    def _by(self, index: int, by: str, **cases: Any) -> Any:
        argument = str(self.arguments.get(by))
        return self.value(cases[argument if argument in cases or "" not in cases else ""], index)

    def _image(self, index: int, image: str, size: Sequence[int] | None = None) -> Any:
        width, height = size or self.guessed_size
        if size is None:
            self.guesses.update(image_width=width, image_height=height)
        return importlib.import_module("PIL.Image").new(image, (width, height))

    def _label(self, index: int, label: Any, **options: int) -> int:
        return options.get("from", 0) + index % self.value(label)

    def _tensor(self, index: int, tensor: str, shape: Sequence[Any], below: Any = None) -> torch.Tensor:
        sizes, dtype = [self.length if size == "N" else size for size in shape], getattr(torch, tensor)
        if below is None:
            return torch.zeros(sizes, dtype=dtype)
        numbers = torch.arange(sizes[0]) % self.value(below)
        return numbers.to(dtype).reshape(-1, *(1 for _ in sizes[1:])).repeat(1, *sizes[1:])

    def _array(self, index: int, array: str, **options: Any) -> Any:
        return self._tensor(index, array, **options).numpy()

    def _list(self, index: int, list: Any) -> Any:
        return [self.value(list, number) for number in range(self.length)]

    def _names(self, index: int, names: Any) -> list[str]:
        if names is None:
            notes().numbers["classes"] = GUESSED_CLASSES
        return [f"class {number}" for number in range(self.value(names) or GUESSED_CLASSES)]

    def _numbers(self, index: int, numbers: Any) -> dict[str, int]:
        return {name: number for number, name in enumerate(self._names(index, numbers))}

    def _cycle(self, index: int, cycle: Sequence[Any]) -> Any:
        return self.value(cycle[index % len(cycle)], index)

    def _dict(self, index: int, dict: Facts) -> Any:
        return {key: self.value(part, index) for key, part in dict.items()}

    def _call(self, index: int, call: str, **options: Any) -> Any:
        return _named(call)(**{key: self.value(part, index) for key, part in options.items()})

    def _file(self, index: int, file: str, size: Sequence[int] | None = None) -> Any:
        contents = BytesIO()
        self._image(index, file, size).save(contents, "png")
        return {"bytes": contents.getvalue(), "path": None}

    def _splits(self, index: int, splits: Mapping[str, int], columns: Facts, features: Facts) -> Any:
        first = {name: self.value(stated) for name, stated in columns.items()}

        def rows(count: int) -> Any:
            values = {name: [first[name]] * count for name in columns}
            labels = [name for name, stated in columns.items() if isinstance(stated, dict) and "label" in stated]
            values |= {name: [self.value(columns[name], row) for row in range(count)] for name in labels}
            return _named(self.facts["table"])(values, _named(self.facts["features"])(self.value({"dict": features})))

        split = self.arguments["split"]
        if split is None:
            return _named(self.facts["tables"])({name: rows(count) for name, count in splits.items()})
        return rows(splits[split.partition("[")[0].partition("+")[0]])

    def sample(self, owner: Any, index: int, get: Callable[..., Any]) -> Any:
        """Return a sample of a dataset. If its rows are stated, and no samples, `get` of its class returns it."""
        if not self.is_noted:
            self.is_noted = True
            self._note(owner)
        if "sample" not in self.facts:
            return get(owner, index)
        sample = self.value(self.facts["sample"], range(self.length)[index])
        through = getattr(owner, self.facts.get("through", ""), None)
        return sample if through is None else through(*sample)

    def _note(self, owner: Any) -> None:
        """Note that samples are placeholders, and their size if it is a guess and has an effect."""
        rows = [stated["shape"][1:] for stated in self.facts.get("attributes", {}).values() if "shape" in stated]
        shown = _shown(self.value(self.facts["sample"])) if "sample" in self.facts else "×".join(map(str, *rows[:1]))
        name, package = self.name.rpartition(".")[2], self.name.partition(".")[0]
        about = ", ".join(part for part in (shown if not self.guesses else "", package) if part)
        notes().add(f"the data of {name} is missing: placeholders of its kind represent its samples ({about})")
        if self.guesses:
            shapes = []
            for size in GUESSED_SIZES[::-1]:
                self.guessed_size = size
                shapes.append([getattr(part, "shape", getattr(part, "size", None)) for part in tree_leaves(owner[0])])
            if shapes[0] != shapes[1]:
                notes().sizes.update(self.guesses)


def _named(path: str) -> Any:
    """Return the object that a table calls `module:qualified.name`."""
    module, _, names = path.partition(":")
    return attrgetter(names)(importlib.import_module(module))


def _shown(sample: Any) -> str:
    first = sample[0] if isinstance(sample, tuple) else sample
    if hasattr(first, "height"):
        return f"{first.mode} {first.height}×{first.width}"
    return "×".join(map(str, getattr(first, "shape", ())))


@contextmanager
def samples_of_missing_datasets(facts: Mapping[str, Facts] | None = None) -> Generator[None, None, None]:
    """Inside, a dataset of the table whose constructor lacks its data has samples of its own kind all the same."""
    finder = _DatasetFinder(table() if facts is None else facts)
    sys.meta_path.insert(0, finder)
    finder.wrap_imported()
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for owner, name, original in reversed(finder.replaced):
            setattr(owner, name, original) if original is not None else delattr(owner, name)


class _DatasetFinder(importlib.abc.MetaPathFinder):
    """Wraps what a table names in the modules that are imported from now on, and knows what it `replaced`."""

    def __init__(self, facts: Mapping[str, Facts]) -> None:
        self._facts, self._modules = facts, {name.rpartition(".")[0] for name in facts}
        self.replaced: list[tuple[Any, str, Any]] = []

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        """Return the spec of a module with something to wrap."""
        if fullname not in self._modules:
            return None
        finders = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(fullname, path, target) for finder in finders)), None)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                self._wrap(module)

            spec.loader.exec_module = exec_module
        return spec

    def wrap_imported(self) -> None:
        """Wrap what the table names in the modules that are there."""
        for name in self._modules & sys.modules.keys():
            self._wrap(sys.modules[name])

    def _wrap(self, module: Any) -> None:
        for name, facts in self._facts.items():
            is_here = name.rpartition(".")[0] == module.__name__
            value = vars(module).get(name.rpartition(".")[2]) if is_here else None
            if isinstance(value, type):
                for method, wrapped in (("__init__", self._init), ("__getitem__", _getitem), ("__len__", _len)):
                    if hasattr(value, method):
                        self._replace(value, method, wrapped(getattr(value, method)))
                self._replace(value, "__init_subclass__", classmethod(_init_subclass))
            elif value is not None:
                self._replace(module, value.__name__, _function(value, name, facts))

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        self.replaced.append((owner, name, vars(owner).get(name)))
        setattr(owner, name, value)

    def _init(self, original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def init(self_: Any, *args: Any, **kwargs: Any) -> None:
            try:
                original(self_, *args, **kwargs)
            except Exception as error:
                if _SAMPLES in vars(self_):
                    return
                if not _lacks_data(error) or not self._gives(self_, _arguments(original, (self_, *args), kwargs)):
                    raise

        return init

    def _gives(self, owner: Any, arguments: Mapping[str, Any]) -> bool:
        """Give a dataset what the table states for its class; return False if it states nothing for the arguments."""
        name = next(name for name in map(_name, type(owner).__mro__) if name in self._facts)
        samples = DatasetSamples(name, self._facts[name], arguments)
        with unset_fake_temporarily():
            try:
                samples.value(samples.facts.get("sample"))
                stated = {n: samples.value(value) for n, value in samples.facts.get("attributes", {}).items()}
            except KeyError:
                return False
        base = next((cls for cls in type(owner).__mro__ if _name(cls) == samples.facts.get("base")), None)
        if base is not None and samples.facts["through"] not in vars(owner):
            names = inspect.signature(base).parameters
            base.__init__(owner, **{name: arguments[name] for name in names if name in arguments})
        options = {name: value for name, value in arguments.items() if not hasattr(type(owner), name)}
        vars(owner).update({**options, **stated, **vars(owner)})
        vars(owner)[_SAMPLES] = samples
        return True


def _init_subclass(cls: Any, **options: Any) -> None:
    """Let a dataset of the user, whose class has samples in a table, lack files of its own as well."""
    super(cls.__mro__[1], cls).__init_subclass__(**options)
    original = vars(cls).get("__init__")
    if original is None:
        return

    @wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            original(self, *args, **kwargs)
        except OSError:
            if _SAMPLES not in vars(self):
                raise

    cls.__init__ = init


def _getitem(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def getitem(self: Any, index: Any) -> Any:
        samples = vars(self).get(_SAMPLES)
        return original(self, index) if samples is None else loaded(lambda: samples.sample(self, index, original))

    return getitem


def _len(original: Callable[..., int]) -> Callable[..., int]:
    @wraps(original)
    def length(self: Any) -> int:
        samples = vars(self).get(_SAMPLES)
        return samples.length if samples is not None and "sample" in samples.facts else original(self)

    return length


def _function(original: Callable[..., Any], name: str, facts: Facts) -> Callable[..., Any]:
    @wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except Exception as error:
            if not _lacks_data(error):
                raise
            samples = DatasetSamples(name, facts, _arguments(original, args, kwargs))
            try:
                with unset_fake_temporarily():
                    data = samples.value(facts["returns"])
            except KeyError:
                raise error from None
            notes().add(f"the data {args[0]} is missing: placeholders of its kind represent its samples")
            return data

    return function


def has_placeholders(data: Any) -> bool:
    """Return True if a dataset, or one that it holds, has placeholders for missing samples."""
    seen, waiting = set[int](), [data]
    while waiting and len(seen) < MAX_PARTS:
        part = waiting.pop()
        if isinstance(part, Dataset) and id(part) not in seen:
            seen.add(id(part))
            if _SAMPLES in vars(part):
                return True
            waiting += vars(part).values()
        elif isinstance(part, (list, tuple)):
            waiting += part[:MAX_PARTS]
    return False


def loaded(load: Callable[[], Any]) -> Any:
    """Return the result of a function that loads data, with fake tensors in place of the real ones with which it runs.

    Integers keep their values.
    """
    with unset_fake_temporarily() as mode:
        result = load()
    if mode is None:
        return result
    fakes: Any = mode

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        if isinstance(tensor, FakeTensor):
            return tensor
        plain = tensor.as_subclass(torch.Tensor)
        return fakes.from_tensor(plain) if plain.is_floating_point() else torch.ops.aten.lift_fresh.default(plain)

    return tree_map_only(torch.Tensor, fake, result)


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _arguments(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by their names, with defaults, without that of `self`."""
    signature = inspect.signature(function)
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    more = [name for name, parameter in signature.parameters.items() if parameter.kind is parameter.VAR_KEYWORD]
    more = [key for name in more for key in bound.arguments[name].items()]
    return {name: value for name, value in (*bound.arguments.items(), *more) if name != "self"}


def _lacks_data(error: Exception) -> bool:
    """Return True for an error of the system, and for one that a package itself raises about what it did not find."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][1:]
    packages = {str(frame.f_globals.get("__name__")).partition(".")[0] for frame in (*frames[:1], *frames[-1:])}
    return isinstance(error, OSError) or (type(error) is RuntimeError and len(packages) == 1)
