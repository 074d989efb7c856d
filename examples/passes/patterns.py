"""Rewriting one pattern to another, and only looking for one."""

import torch
from torch import fx
from torch.fx.passes.utils.matcher_utils import SubgraphMatcher

aten = torch.ops.aten


def bias_pattern(x, w, b):
    return aten.add.Tensor(aten.mm.default(x, w), b)


def bias_replacement(x, w, b):
    return aten.addmm.default(b, x, w)


def feeds_relu(match, graph, pattern):
    """A filter: the sum goes into a relu."""
    return any(user.target == aten.relu.default for node in match.returning_nodes for user in node.users)


fuse_bias = (bias_pattern, bias_replacement)
fuse_bias_before_relu = (bias_pattern, bias_replacement, [feeds_relu])


def _relu_of_sum(x, y):
    return aten.relu.default(aten.add.Tensor(x, y))


relu_of_sum = SubgraphMatcher(fx.symbolic_trace(_relu_of_sum).graph, ignore_literals=True)
