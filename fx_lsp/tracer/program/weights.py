"""Leave out missing weights, which a program would download or read from a missing file."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
import torch.hub
from torch import nn

from fx_lsp.tracer.notes import notes
from fx_lsp.tracer.program.scratch import is_scratch


class MissingWeights(dict[Any, Any]):
    """A placeholder for the contents of a file of weights: each lookup in it returns missing weights again."""

    def __getitem__(self, key: Any) -> Any:
        try:
            return super().__getitem__(key)
        except TypeError:  # a slice: of an array that was saved
            return self

    def __missing__(self, key: Any) -> MissingWeights:
        return self

    def get(self, key: Any, default: Any = None) -> Any:
        """Return missing weights for any key."""
        return self

    def pop(self, key: Any, default: Any = None) -> Any:
        """Return missing weights for any key."""
        return self


def left_out(source: Any) -> MissingWeights:
    """Record that weights from `source` are left out, and return the placeholder."""
    notes().weights[str(source)] = None
    return MissingWeights()


@contextmanager
def without_weights() -> Generator[None, None, None]:
    """Replace downloaded weights and missing files inside by weights without effect; none are saved, and hubs have no
    models.
    """
    load, load_state_dict, save = torch.load, nn.Module.load_state_dict, torch.save
    hub: Any = torch.hub
    models_of_hub = hub.list
    download: Any = torch.hub.load_state_dict_from_url
    code = download.__code__

    def load_or_leave_out(f: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return load(f, *args, **kwargs)
        except (FileNotFoundError, PermissionError):
            return left_out(f)

    def load_what_is_there(self: nn.Module, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(state_dict, MissingWeights):
            return nn.modules.module._IncompatibleKeys([], [])
        return load_state_dict(self, state_dict, *args, **kwargs)

    def save_nothing(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        if not is_scratch() and isinstance(f, (str, os.PathLike)):
            open(os.fspath(f), "ab").close()

    def no_models(github: Any, *args: Any, **kwargs: Any) -> list[str]:
        notes().weights[str(github)] = None
        return []

    torch.load, nn.Module.load_state_dict, torch.save = load_or_leave_out, load_what_is_there, save_nothing
    hub.list = no_models
    download.__code__ = _not_downloaded.__code__  # in place: packages have imported the function under other names
    try:
        yield
    finally:
        torch.load, nn.Module.load_state_dict, torch.save = load, load_state_dict, save
        hub.list = models_of_hub
        download.__code__ = code


def _not_downloaded(
    url: str,
    model_dir: Any = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: Any = None,
    weights_only: bool = False,
) -> Any:
    import fx_lsp.tracer.program.weights

    return fx_lsp.tracer.program.weights.left_out(url)
