# targets: Energy, Member, Shipped, Broken, with_parameters, ensemble, ensemble.ask
import copy

import torch
import torch.nn as nn
from torch.export import Dim, export
from torch.func import functional_call, grad, hessian, jacrev, stack_module_state, vmap


class Energy(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.up, self.down = nn.Linear(3, width), nn.Linear(width, 1)

    def forward(self, x):
        return self.down(self.up(x).tanh()).squeeze(-1)


class Member(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(3, 1)

    def forward(self, x):
        return self.out(x)


class Shipped(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(3, 1)

    def forward(self, x):
        return self.out(x).relu()


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 1)

    def forward(self, x):
        return self.out(x).sum()
        #      ^^^^^^^^^^^ error[shape]:
        #  matrices of 1×3 and 4×1 cannot be multiplied: the inner sizes 3 and 4 differ (input: f32[3], weight: f32[1,
        #  4], bias: f32[1]).
        #  line 59: also reached from __main__


def with_parameters(parameters, net, x):
    return functional_call(net, parameters, (x,))


def ensemble(members, x):
    weights, buffers = stack_module_state(members)
    blank = copy.deepcopy(members[0]).to("meta")

    def ask(weights, buffers, x):
        return functional_call(blank, (weights, buffers), (x,))

    return vmap(ask, in_dims=(0, 0, None))(weights, buffers, x)


if __name__ == "__main__":
    net, xs = Energy(), torch.randn(5, 3)
    vmap(jacrev(net))(xs)
    vmap(hessian(net))(xs)
    vmap(grad(with_parameters), in_dims=(None, None, 0))(dict(net.named_parameters()), net, xs)
    ensemble([Member() for _ in range(3)], torch.randn(8, 3))
    export(Shipped().eval(), (torch.randn(2, 3),), dynamic_shapes={"x": {0: Dim("batch")}})
    vmap(grad(Broken()))(xs)
