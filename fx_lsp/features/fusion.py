"""Read the data on the kernels of a target, and on why neighbouring kernels are not one."""

from __future__ import annotations

import json
from typing import Any, cast

from fx_lsp.model import Node, Stage


def fusion_data(stage: Stage) -> dict[str, Any]:
    """Return the kernels of fx-lsp and of Inductor as JSON, with the places of their operations."""
    data: dict[str, Any] = json.loads(stage.text)
    for generator in data.values():
        for kernel in (kernel for graph in generator["graphs"] for kernel in graph["kernels"]):
            kernel["operations"] = [_operation(stage.nodes[index]) for index in cast("list[int]", kernel["operations"])]
    return data


def _operation(node: Node) -> dict[str, Any]:
    place = (node.span.file, node.span.line) if node.span is not None else (None, None)
    return {"name": node.name, "target": node.target, "file": place[0], "line": place[1]}
