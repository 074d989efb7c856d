"""Small files like those that `fx-lsp kernel` writes, whose entry does what a test says."""

from __future__ import annotations

import textwrap

ORIGINAL = "y = torch.sigmoid(x) * weight"


def generated(entry: str, before: str = "", original: str = ORIGINAL, shape: str = "(4, 8)", grad: bool = True) -> str:
    """A file with the entry `f(x, weight)`, which holds the lines `entry`, after the lines `before`; its arguments want
    a gradient, or none."""
    return "\n".join(
        [
            '"""f as Triton kernels: forward and backward."""',
            "import gc, inspect, os, sys, threading, time",
            "import torch",
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
        ]
    )


HONEST = "return torch.sigmoid(x) * weight"
