"""List the modules of a call, and their parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import nn

from fx_lsp.model import ModuleInfo
from fx_lsp.tracer.capture.node_values import stored_bytes


def modules_of(modules: Mapping[str, nn.Module]) -> Iterator[ModuleInfo]:
    """Yield the modules of a call and their submodules, with the parameters not counted in an earlier one."""
    counted: set[int] = set()
    for prefix, module in modules.items():
        for path, part in module.named_modules(prefix=prefix):
            own = [p for p in part.parameters(recurse=False) if id(p) not in counted]
            counted.update(map(id, own))
            yield ModuleInfo(path, type(part).__name__, sum(p.numel() for p in own), sum(map(stored_bytes, own)))
