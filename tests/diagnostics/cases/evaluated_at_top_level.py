# targets: plain, jacobian, trained, doubled, frozen, initialized
import torch
import torch.nn as nn
from torch.nn.init import zeros_

net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
net.eval()

other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))

wide = nn.Linear(3, 4)
wide.double()

still = nn.Linear(3, 4)
for parameter in still.parameters():
    parameter.requires_grad_(False)

zero = nn.Linear(3, 4)
zeros_(zero.weight)


def plain(x: torch.Tensor):
    return net(x)


def jacobian(x: torch.Tensor):
    return torch.func.jacrev(net)(x)


def trained(x: torch.Tensor):
    return torch.func.jacrev(other)(x)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^ error[error]:
    #  During a grad (vjp, jvp, grad, etc) transform, the function provided attempted to call in-place operation
    #  (aten::add_.Tensor) that would mutate a captured Tensor. This is not supported; please rewrite the function
    #  being transformed to explicitly accept the mutated Tensor(s) as inputs (input: i64[]).


def doubled(x: torch.Tensor):
    return wide(x.double())


def frozen(x: torch.Tensor):
    still(x).sum().backward()
    return still.weight.grad * 2
    #      ^^^^^^^^^^^^^^^^^^^^^ error[error]: TypeError: unsupported operand type(s) for *: 'NoneType' and 'int'.


def initialized(x: torch.Tensor):
    return zero(x)
