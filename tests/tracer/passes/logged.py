"""A run of `torch.compile` on every target of a file, for what TORCH_LOGS prints: `python logged.py FILE`.

Tensors are real, and so is everything up to the machine code: kernels are not built, and nothing compiled is called.
Lines on standard error that begin with `@@` say whose graphs follow, and of which of the two runs: "inductor", or
"plain" for AOTAutograd with the min-cut partitioner and without decompositions.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from fx_lsp.specs import DTYPES, Comment, TensorSpec, parse_comment
from fx_lsp.tracing.analysis import analyse


class Stop(BaseException):
    """Everything was compiled, and would now be called."""


def stop(*args: Any, **options: Any) -> Any:
    raise Stop


def main(file: str) -> None:
    """Compile each target, in the order of the file."""
    spec = importlib.util.spec_from_file_location("user", file)
    assert spec and spec.loader
    module = sys.modules["user"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with open(file) as stream:
        analysis = analyse(file, stream.read(), ())
    plain = plain_backend()
    only_compile()
    for name in analysis.targets:
        if "." in name:
            continue
        comment = parse_comment(analysis.request(name, {}, 5.0).given[0].text)
        assert isinstance(comment, Comment)
        for run, options in (("inductor", {}), ("plain", {"backend": plain})):
            print(f"@@ {name} {run}", file=sys.stderr, flush=True)
            torch._dynamo.reset()
            torch.manual_seed(0)
            target = getattr(module, name)
            if isinstance(target, type) and issubclass(target, nn.Module):
                target = target(**(comment.init or {})).train(comment.training is not False)
            with suppress(Stop):
                torch.compile(target, **options)(**{key: real(value) for key, value in comment.args.items()})
    sys.stderr.flush()
    os._exit(0)


def real(value: Any) -> Any:
    """A tensor of a spec; one that can have a gradient has one."""
    if not isinstance(value, TensorSpec):
        return value
    dtype: torch.dtype = getattr(torch, DTYPES[value.dtype])
    if not dtype.is_floating_point and not dtype.is_complex:
        made = torch.zeros(value.sizes, dtype=dtype)
    elif value.strides is None:
        made = torch.randn(value.sizes, dtype=dtype)
    else:
        made = torch.empty_strided(value.sizes, value.strides, dtype=dtype).normal_()
    return made.requires_grad_() if dtype.is_floating_point or dtype.is_complex else made


def plain_backend() -> Any:
    """AOTAutograd as fx-lsp calls it for the graphs that it shows everywhere."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    return aot_autograd(
        fw_compiler=stop,
        bw_compiler=stop,
        inference_compiler=stop,
        partition_fn=min_cut_rematerialization_partition,
        decompositions={},
        keep_inference_input_mutations=True,
    )


def only_compile() -> None:
    """Forward and backward are compiled, anew, without a C++ compiler, and not called."""
    import torch._functorch.config as functorch_config
    import torch._inductor.config as inductor_config
    from torch._inductor import async_compile, cpu_vec_isa, output_code

    functorch_config.force_non_lazy_backward_lowering = True
    inductor_config.force_disable_caches = True
    inductor_config.compile_threads = 1
    cpu_vec_isa.valid_vec_isa_list = list
    async_compile.AsyncCompile.cpp_pybinding = lambda self, types, code: stop
    output_code.CompiledFxGraph.__call__ = stop


if __name__ == "__main__":
    main(sys.argv[1])
