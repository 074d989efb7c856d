# Stand-ins for modules, functions and lists that nobody gave: they are called and gone over as the code does it.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === Stand-ins for modules, functions and lists that nobody gave
def in_chunks(function, size):
    def run(x):
        return torch.cat([function(x[i : i + size]) for i in range(0, x.shape[0], size)])
    return run

def rendered(points, network, size=1024):
    return in_chunks(network, size)(points) + 1

class Waves:
    def __init__(self, **options):
        functions = []
        for frequency in torch.linspace(1.0, 8.0, steps=options["count"]):
            for wave in options["waves"]:
                functions.append(lambda x, wave=wave, frequency=frequency: wave(x * frequency))
        self.functions = functions

    def embed(self, x):
        return torch.cat([function(x) for function in self.functions], -1)
#: rendered(points=f32[4, 64], network=torch.nn.functional.relu · search; size=1024 · default) -> f32[4, 64]
#: Waves.embed(init.count=8, init.waves[0]=torch.nn.functional.relu, init.waves[1]=torch.nn.functional.relu, x=f32[4,
#:   64] · search) -> f32[4, 1024]

# === A module has what a constructor asserts of it
class Diffusion(nn.Module):
    def __init__(self, model):
        super().__init__()
        assert model.learned
        assert not model.conditional, "not supported"
        self.model = model

    def forward(self, x):
        device = next(self.model.parameters()).device
        return self.model(x * 2, torch.rand(x.shape[0], device=device))
#: Diffusion(init.model=(lambda x, *others, **named: x) with conditional=False, learned=True, x=f32[4, 8, 64] · search)
#:   -> f32[4, 8, 64]

# === What a stand in returns requires nothing
class Flow:
    def __init__(self, net):
        self.net = net

    def loss(self, images):
        t = torch.rand(images.shape[0])
        return (self.net(t.view(-1, 1, 1, 1) * images, t) - images).square().mean()
#: Flow.loss(init.net=torch.add · search; images=f32[4, 3, 4, 4] · search: sizes that fit) -> f32[]

# === What is called and whose attributes are read has both
def sample(net, x, sigma_min=0.002):
    sigma = max(sigma_min, net.sigma_min)
    return net(torch.relu(x), net.round_sigma(sigma), 2)
#: sample(net=(lambda x, *others, **named: x) with sigma_min=2, round_sigma=Identity(), x=f32[4, 64] · search;
#:   sigma_min=0.002 · default) -> f32[4, 64]

# === A model takes what a function that wraps it passes
def wrapped(model, training):
    def call(x, labels):
        if training:
            model.train()
            return model(x, labels)
        model.eval()
        return model(x, labels)
    return call

def score_loss(model, batch):
    t, noise = torch.rand(batch.shape[0]), torch.randn_like(batch)
    score = wrapped(model, True)(batch + noise * t[:, None], t)
    return (score + noise).square().mean()
#: score_loss(model=lambda x, *others, **named: x, batch=f32[4, 64] · search) -> f32[]

# === A value with methods of texts is one
class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.Embedding(16, 8)

    def forward(self, text):
        words = text.split(",") if "," in text else text.split()
        return self.rows(torch.arange(len(words)))
#: Words(text='a b' · search) -> f32[2, 8]

# === An optimizer takes parameters, as its base class says
class Signs(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3):
        super().__init__(params, dict(lr=lr))

    def reset(self, group):
        for p in group["params"]:
            self.state[p]["average"] = torch.zeros_like(p)
#: Signs.reset(init.params[0]=f32[4, 8, 64], init.params[1]=f32[4, 8, 64], group['params']=f32[4, 64] · search) ->

# === A program's table of constants holds tensors of an earlier run
import torch_tables

def turned(angle: Tensor):
    return torch.stack([angle.cos(), torch_tables.constant(0.0).expand_as(angle)], -1)
# --- torch_tables.py
import torch

_constants = {}

def constant(value):
    if value not in _constants:
        _constants[value] = torch.as_tensor(value)
    return _constants[value]
#: turned [ops](angle=f32[4, 64] · search) -> f32[4, 64, 2]
#:   ops: cos, expand, stack
