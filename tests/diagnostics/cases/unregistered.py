# targets: Plain, Table, Registered, Frozen, Borrowed, Owner, Collected, Appended, Small, Derived, Cyclic, Trunk,
#  train.step
import torch
import torch.nn as nn


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = [nn.Linear(8, 8), nn.Linear(8, 8)]
       #^^^^^^^^^^ warning[unregistered]:
       #  `self.steps` is a plain list: `parameters()`, `to()` and `state_dict()` do not reach its layers; make it an
       #  `nn.ModuleList`.
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        for step in self.steps:
            x = step(x).relu()
        return self.out(x)


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.by_name = {"a": nn.Linear(8, 8)}
       #^^^^^^^^^^^^ warning[unregistered]:
       #  `self.by_name` is a plain dict: `parameters()`, `to()` and `state_dict()` do not reach its layers; make it
       #  an `nn.ModuleDict`.
        self.scale = torch.ones(8, requires_grad=True)
       #^^^^^^^^^^ warning[unregistered]:
       #  `self.scale` is a plain tensor: `parameters()`, `to()` and `state_dict()` do not reach it; make it an
       #  `nn.Parameter`.
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        return self.out(self.by_name["a"](x) * self.scale)


class Registered(nn.Module):
    def __init__(self, widths=(8, 8, 8)):
        super().__init__()
        self.steps = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        self.pair = [self.steps[0], self.steps[1]]
        self.extra = []
        for number in range(2):
            layer = nn.Linear(8, 8)
            self.add_module(f"extra{number}", layer)
            self.extra.append(layer)

    def forward(self, x):
        for step in [*self.pair, *self.extra]:
            x = step(x).relu()
        return x


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.teacher = [nn.Linear(8, 8).requires_grad_(False)]
        self.out = nn.Linear(8, 8)
        self.table = torch.ones(8)

    def forward(self, x):
        return (self.out(x) - self.teacher[0](x)) * self.table


class Borrowed(nn.Module):
    def __init__(self, decoder, layers):
        super().__init__()
        self.layers = list(layers)
        self.borrowed = (decoder,)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.borrowed[0](x)


class Owner(nn.Module):
    def __init__(self):
        super().__init__()
        self.decoder = nn.Linear(8, 8)
        self.layers = nn.ModuleList([nn.Linear(8, 8)])
        self.part = Borrowed(self.decoder, self.layers)

    def forward(self, x):
        return self.part(x)


class Collected(nn.Module):
    def __init__(self):
        super().__init__()
        self.scales = [nn.Parameter(torch.ones(8)) for _ in range(2)]

    def forward(self, x):
        return x * self.scales[0] + self.scales[1]


class Appended(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.blocks = []
       #^^^^^^^^^^^ warning[unregistered]:
       #  `self.blocks` is a plain list: `parameters()`, `to()` and `state_dict()` do not reach its layers; make it an
       #  `nn.ModuleList`.
       #  line 138: also reached from Trunk
        self._build(depth)
        self.branches = {"left": (nn.Linear(8, 4), nn.GELU()), "right": (nn.Linear(8, 4), nn.SiLU())}
       #^^^^^^^^^^^^^ warning[unregistered]:
       #  `self.branches` is a plain dict: `parameters()`, `to()` and `state_dict()` do not reach its layers; make it
       #  an `nn.ModuleDict`.
       #  line 138: also reached from Trunk

    def _build(self, depth):
        for _ in range(depth):
            self.blocks.append(nn.Sequential(nn.Linear(8, 8), nn.ReLU()))

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return torch.cat([act(layer(x)) for layer, act in self.branches.values()], -1)


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8)) * 0.02
       #^^^^^^^^^^^ warning[unregistered]:
       #  `self.weight` is computed from an `nn.Parameter` and is none: `parameters()`, `to()` and `state_dict()` do
       #  not reach it; compute first, and make the result the parameter.
        self.bias = nn.Parameter(torch.randn(8)).to(torch.bfloat16)
       #^^^^^^^^^ warning[unregistered]:
       #  `self.bias` is computed from an `nn.Parameter` and is none: `parameters()`, `to()` and `state_dict()` do not
       #  reach it; compute first, and make the result the parameter.

    def forward(self, x):
        return x @ self.weight + self.bias.float()


class Derived(nn.Module):
    def __init__(self, table=nn.Parameter(torch.randn(8, 8))):
        super().__init__()
        self.base = nn.Parameter(torch.randn(8, 8) * 0.02)
        self.symmetric = self.base + self.base.T
        self.table = torch.relu(table)
        self.frozen = nn.Parameter(torch.randn(8), requires_grad=False) * 0.02

    def forward(self, x):
        return x @ self.symmetric + x @ self.table + self.frozen


class Cyclic(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(8, 8)
        self.tree = {"children": [], "name": "root"}
        self.tree["children"].append(self.tree)

    def forward(self, x):
        return self.out(x)


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Appended()

    def forward(self, x):
        return self.inner(x)


def train(data):
    model = Collected()
    optimizer = torch.optim.SGD(model.scales, lr=0.1)
    for x in data:
   #^^^ information[inputs]: no call of train was found.
        model(x).sum().backward()
        optimizer.step()
