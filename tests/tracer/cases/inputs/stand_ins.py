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

# === A function that is guessed has no attributes: the code says what it reads
def sample(net, x, sigma_min=0.002):
    sigma = max(sigma_min, net.sigma_min)
    #                      ^^^^^^^^^^^^^ information[inputs]:
    #  AttributeError: 'builtin_function_or_method' object has no attribute 'sigma_min'. The inputs are guessed; write
    #  the real ones in a comment: `# fx: net=torch.addcmul, x=f32[4, 64]`.
    return net(torch.relu(x), net.round_sigma(sigma), 2)
#: sample(net=torch.addcmul, x=f32[4, 64] · search; sigma_min=0.002 · default)
