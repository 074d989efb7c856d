# What code asks for that its signature does not say: arguments through `**kwargs`, modules to call, tensors.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === What code asks for that its signature does not say
import abc

class Layer(nn.Module):
    def __init__(self, dim, *, depth, bias: bool, eps=1e-5):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(dim, dim, bias=bias) for _ in range(depth)))

    def forward(self, x):
        return self.layers(x)

class Groups(nn.Module):
    def __init__(self, *, dim, groups=2, **kwargs):
        super().__init__()
        assert dim % groups == 0
        self.parts = nn.ModuleList(Layer(dim // groups, **kwargs) for _ in range(groups))

    def forward(self, x):
        return torch.cat([part(y) for part, y in zip(self.parts, x.chunk(len(self.parts), -1))], -1)

class Keyed(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(options["width"]))

    def forward(self, x):
        return x * self.scale

class Residual(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, x):
        return self.fn(x) + x

class Kept(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)

class Two(nn.Module):
    def __init__(self, f, g):
        super().__init__()
        self.f, self.g = Kept(f), Kept(g)

    def forward(self, x):
        return self.f(x) * self.g(x)

class Chain(nn.Module):
    def __init__(self, layers: list):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x * 2

class Counted(nn.Module):
    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def forward(self, x):
        for number, step in enumerate(self.steps):
            x = step(x) * number
        return x

class Ensemble(nn.Module):
    def __init__(self, *models):
        super().__init__()
        self.models = models

    def forward(self, x):
        return torch.stack([model(x) for model in self.models]).mean(0)

class Branches(nn.Module):
    def __init__(self, branches: nn.ModuleDict):
        super().__init__()
        self.branches = branches

    def forward(self, x):
        return sum(branch(x) for branch in self.branches.values())

class Solver(abc.ABC):
    def __init__(self, order: int = 2):
        self.order = order

    @abc.abstractmethod
    def step(self, x):
        raise NotImplementedError("a solver has steps")
       #^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ information[inputs]:
       #  a solver has steps. The inputs are guessed; write the real ones in a comment: `# fx: x=f32[4, 64]`.
       #  line 105: traced Solver.stepped

    def power(self, x: torch.Tensor):
        return x ** self.order

    def stepped(self, x: torch.Tensor):
        return self.step(torch.relu(x)) * 2

def rotated(x, scale=1):
    if scale.ndim == 2:
        x = x * scale[-x.shape[-2]:]
    return x.sin()

def counted(x, chosen):
    return x.sum() * F.one_hot(chosen.flatten(), 8).float().mean(0)

class Given:
    def __init__(self, base):
        self.kind = base.kind
        #           ^^^^^^^^^ information[construct]:
        #  AttributeError: 'int' object has no attribute 'kind' (constructing Adjoint). The inputs are guessed; write
        #  the real ones in a comment: `# fx: init(base=…)`.
        #  line 124: traced Adjoint.state

class Adjoint:
    def __init__(self, base: Given):
        self.kind = base.kind_of_base

    def state(self, x: torch.Tensor):
        return x * 2
#: Groups(init.dim=64 · search; init.depth=2, init.bias=False · search: for Layer; x=f32[4, 8, 64] · search) -> f32[4,
#:   8, 64]
#: Keyed(init.width=8 · search; x=f32[4, 12, 8] · search: sizes that fit) -> f32[4, 12, 8]
#: Residual(init.fn=nn.Identity(), x=f32[4, 8, 64] · search) -> f32[4, 8, 64]
#: Two(init.f=torch.nn.functional.relu, init.g=torch.nn.functional.relu, x=f32[4, 8, 64] · search) -> f32[4, 8, 64]
#: Chain(init.layers[0]=nn.Identity(), init.layers[1]=nn.Identity(), x=f32[4, 8, 64] · search) -> f32[4, 8, 64]
#: Counted(init.steps[0]=nn.Identity(), init.steps[1]=nn.Identity(), x=f32[4, 8, 64] · search) -> f32[4, 8, 64]
#: Ensemble(init.models[0]=nn.Identity(), init.models[1]=nn.Identity(), x=f32[4, 8, 64] · search) -> f32[4, 8, 64]
#: Branches(init.branches=nn.ModuleDict({'a': nn.Identity()}), x=f32[4, 8, 64] · search) -> f32[4, 8, 64]
#: Solver.power(x=f32[4, 64] · search) -> f32[4, 64]
#: Solver.stepped(x=f32[4, 64] · search)
#: Adjoint.state(init.base=Given() · annotation)
#: rotated(x=f32[4, 64] · search; scale=f32[8, 64] · search: sizes that fit) -> f32[4, 64]
#: counted(x=f32[4, 64], chosen=i64[8, 12] · search) -> f32[8]
