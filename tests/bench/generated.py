"""Small files like those that `fx-lsp kernel` writes, whose entry does what a test says."""

from __future__ import annotations

import textwrap

from fx_lsp.tracer.kernels.comparison import COMPARE, DOUBLED, RESULTS, TENSORS, main

ORIGINAL = "y = torch.sigmoid(x) * weight"


def generated(entry: str, before: str = "", original: str = ORIGINAL, shape: str = "(4, 8)", grad: bool = True) -> str:
    """A file with the entry `f(x, weight)`, which holds the lines `entry`, after the lines `before`; its arguments want
    a gradient, or none."""
    parts = (TENSORS, RESULTS, DOUBLED, COMPARE)
    return "\n".join(
        [
            "import gc, inspect, os, sys, threading, time",
            "import torch",
            "from torch.utils._pytree import tree_map",
            "",
            textwrap.dedent(before),
            "def f(x, weight):",
            textwrap.indent(textwrap.dedent(entry), "    "),
            "",
            "def original():",
            "    import torch",
            "    def f(x, weight):",
            f"        {original}",
            "        return y",
            "    return f",
            "",
            "def arguments(seed, device):",
            "    torch.manual_seed(seed)",
            f"    x = torch.randn({shape}, device=device, requires_grad={grad})",
            f"    weight = torch.randn({shape}[-1:], device=device, requires_grad={grad})",
            "    return (x, weight), {}",
            *(part.replace("KERNELS", "f") for part in parts),
            'if __name__ == "__main__":',
            *(f"    {line}".replace("KERNELS", "f") for line in main("f", "", False, ())),
        ]
    )


HONEST = "return torch.sigmoid(x) * weight"
