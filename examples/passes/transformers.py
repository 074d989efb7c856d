"""Passes that make a new graph, node by node."""

import torch
from torch import fx

aten = torch.ops.aten


class AddToSub(fx.Transformer):
    """One to one: every addition becomes a subtraction."""

    def call_function(self, target, args, kwargs):
        if target == aten.add.Tensor:
            target = aten.sub.Tensor
        return super().call_function(target, args, kwargs)


class SigmoidToExp(fx.Transformer):
    """One to many: sigmoid becomes the operations that it is made of."""

    def call_function(self, target, args, kwargs):
        if target != aten.sigmoid.default:
            return super().call_function(target, args, kwargs)
        negative = super().call_function(aten.neg.default, args, {})
        power = super().call_function(aten.exp.default, (negative,), {})
        total = super().call_function(aten.add.Tensor, (power, 1), {})
        return super().call_function(aten.reciprocal.default, (total,), {})


class NoDropout(fx.Transformer):
    """Removing: the first result of dropout is its input, where nothing reads the mask."""

    def call_function(self, target, args, kwargs):
        if target == aten.native_dropout.default:
            return (args[0], None)
        return super().call_function(target, args, kwargs)


class ScalarToTensor(fx.Transformer):
    """Numbers become tensors: `mul(x, 0.5)` becomes `mul(x, full([], 0.5))`."""

    def call_function(self, target, args, kwargs):
        if target in (aten.mul.Tensor, aten.add.Tensor) and isinstance(args[1], (int, float)):
            scalar = super().call_function(aten.full.default, ([], args[1]), {})
            args = (args[0], scalar)
        return super().call_function(target, args, kwargs)
