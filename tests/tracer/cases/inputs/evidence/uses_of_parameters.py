# What code means by parameters of which it says little: their classes, their uses, what the file has besides.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === A model that another object calls
class Wrapped:
    def __init__(self, model):
        self.model = model

    def __call__(self, x, steps):
        return self.model(x, steps * 2)

def sample(model, x: torch.Tensor, t: torch.Tensor):
    return Wrapped(model)(x, t).tanh() + x
#: sample(model=lambda x, *others, **named: x, x=f32[8, 32], t=f32[12, 96] · search) -> f32[8, 32]

# === A model of which nobody knows what it gives
class Wrapped:
    def __init__(self, model):
        self.model = model

    def __call__(self, x, steps):
        return self.model(x, steps * 2)

def sample(model, x: torch.Tensor, t: torch.Tensor):
    mean, log_variance = Wrapped(model)(x, t).split(x.shape[1], dim=1)
    return mean + torch.exp(log_variance) * x
#: sample [backward](model.result=f32[4, 64] · search; x=f32[4, 32] · search: sizes that fit; t=f32[12, 96] · search) ->
#:   f32[4, 32]
#:   backward:
#:     x: f32[4, 32] = placeholder
#:     exp: f32[4, 32] = placeholder
#:     grad_out: f32[4, 32] = placeholder
#:     grad_x: f32[4, 32] = aten.mul.Tensor(grad_out, exp)
#:     mul_3: f32[4, 32] = aten.mul.Tensor(grad_out, x)
#:     detach: f32[4, 32] = aten.detach.default(exp)
#:     detach_1: f32[4, 32] = aten.detach.default(detach)
#:     mul_4: f32[4, 32] = aten.mul.Tensor(mul_3, detach_1)
#:     grad_model_result: f32[4, 64] = aten.cat.default([grad_out, mul_4], 1)
#:     return (grad_model_result, grad_x, None)

# === What is taken backwards is an array
import numpy as np

def mirrored(rows, x: torch.Tensor):
    return x.relu() * torch.from_numpy(np.tril(rows[:, ::-1]).copy()).sum()
#: mirrored(rows=np.linspace(0.01, 0.99, 256).reshape(64, 4) · search: used as an array; x=f32[4, 64] · search) ->
#:   f32[4, 64]

# === Objects in objects have what is read of them
import numpy as np

class Critic(nn.Module):
    def __init__(self, env, cfg):
        super().__init__()
        rows, columns = env.board.shape
        self.fc = nn.Linear(np.array(env.seen.shape).prod() + env.actions.n + rows, cfg["net"]["width"])

    def forward(self, x, a):
        return self.fc(torch.cat([x, a], 1))
#: Critic(init.env=SimpleNamespace(actions=namespace(n=2), board=namespace(shape=(64, 64)),
#:   seen=namespace(shape=(64,))), init.cfg={'net': {'width': 8}} · search; x=f32[4, 8, 130], a=f32[4, 16, 130] ·
#:   search: sizes that fit) -> f32[4, 24, 8]

# === Numbers that a configuration leaves open
from dataclasses import dataclass

@dataclass
class Plan:
    width: int = None
    entries: int = -1
    rate: float = 0.1

class Table(nn.Module):
    def __init__(self, plan: Plan):
        super().__init__()
        self.rows = nn.Embedding(plan.entries, plan.width)
        self.drop = nn.Dropout(plan.rate)

    def forward(self, numbers):
        return self.drop(self.rows(numbers))
#: Table(init.plan=Plan(width=8, entries=2), numbers=i64[4, 8] · search) -> f32[4, 8, 8]

# === A configuration without open numbers is left as it is
class Plan:
    def __init__(self, width: int = 24):
        self.width = width

class Table(nn.Module):
    def __init__(self, plan: Plan):
        super().__init__()
        self.up = nn.Linear(plan.width, 8)

    def forward(self, x):
        return self.up(x)
#: Table(init.plan=Plan() · annotation; x=f32[4, 8, 24] · search) -> f32[4, 8, 8]

# === A call with proxies is none
# A transformation of graphs calls a module with what stands for tensors.
from torch import fx

class Gate(nn.Module):
    def forward(self, left, right):
        return torch.sigmoid(left) * right

def recorded(module):
    graph = fx.Graph()
    tracer = fx.proxy.GraphAppendingTracer(graph)
    left, right = (fx.Proxy(graph.placeholder(name), tracer) for name in ("left", "right"))
    return module(left, right)

recorded(Gate())
#: Gate(left=f32[4, 8, 64] · search; right=f32[4, 8, 64] · search: sizes that fit) -> f32[4, 8, 64]

# === An abstract class stands for one that has its methods
from abc import abstractmethod

class Coder(nn.Module):
    @abstractmethod
    def squeezed(self, x): ...

class Halving(Coder):
    def squeezed(self, x):
        return x[..., ::2]

def compressed(coder: Coder, x):
    return coder.squeezed(torch.relu(x)) * len(KINDS)

KINDS = [Halving]
#: compressed(coder=Halving() · annotation; x=f32[4, 64] · search) -> f32[4, 32]

# === A class of layers that is called with too little is applied in part
class Twice(nn.Module):
    def __init__(self, channels, make=nn.Conv2d, squash=None):
        super().__init__()
        self.one, self.two = make(channels, 2 * channels), make(2 * channels, channels)
        self.squash = squash

    def forward(self, x):
        return x + self.two(self.squash(self.one(x)))
#: Twice(init.channels=64 · search; init.make=functools.partial(torch.nn.modules.conv.Conv2d, kernel_size=3, padding=1)
#:   · search: from an error; init.squash=torch.nn.functional.relu, x=f32[4, 64, 32, 32] · search) -> f32[4, 64, 32, 32]

# === A part is made as the whole makes it although that does not run
class Whole(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.part = Part({"in": width, "out": [3, 5]})

    def forward(self, x):
        raise RuntimeError("not today")

class Part(nn.Module):
    def __init__(self, plan):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(plan["in"], n) for n in plan["out"])

    def forward(self, x):
        return [layer(x) for layer in self.layers]
#: Part(init.plan['in']=20, init.plan['out'][0]=3, init.plan['out'][1]=5 · call site `self.part = Part({"in": width,
#:   "out": [3, 5]})`; x=f32[4, 8, 20] · search: sizes that fit) -> f32[4, 8, 3], f32[4, 8, 5]

# === A module is known by what is read of it
class Reader(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.lookup = nn.Embedding(100, width)
        self.out = nn.Linear(width, 7)

    def forward(self, rows):
        return self.out(rows)

class Both(nn.Module):
    def __init__(self, reader):
        super().__init__()
        self.reader = reader

    def forward(self, words):
        return self.reader(self.reader.lookup(words))
#: Both(init.reader=Reader() · search: a module of the file; words=i64[4, 8] · search) -> f32[4, 8, 7]

# === A mask is the same for all channels
class Masked(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.last = nn.Conv1d(width, 12, 1), nn.Conv1d(12, width, 1)

    def forward(self, x, keep_mask):
        x = self.first(x * keep_mask) * keep_mask
        return self.last(x) * keep_mask
#: Masked(init.width=8, x=f32[4, 8, 64] · search; keep_mask=f32[4, 1, 64] · search: sizes that fit) -> f32[4, 8, 64]

# === Lengths are whole numbers one for each example
def valid(rows, row_lengths):
    steps = torch.arange(rows.size(1))
    return rows * (steps[None] < row_lengths[:, None])
#: valid(rows=f32[4, 64] · search; row_lengths=i64[4] · search: sizes that fit) -> f32[4, 64]

# === Bounds of slices are whole numbers
def windows(x, starts):
    parts = []
    for i in range(x.size(0)):
        first = starts[i]
        parts.append(x[i, first : first + 3])
    return torch.stack(parts)
#: windows(x=f32[4, 64] · search; starts=(0, 0, 0, 0) · search: from an error) -> f32[4, 3]

# === A number that names a device may name another
class Sampler(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.out = nn.Linear(width, 3)
        self.width = width

    def draw(self, count: int, place: int):
        noise = torch.randn(count, self.width).to(place)
        return self.out(noise)

    def forward(self, x):
        return self.out(x)
#: Sampler.draw(init.width=8, count=8 · search; place=device(type='cpu') · search: from an error) -> f32[8, 3]
#:   note: there is no cuda device here: where PyTorch selects operations by device (batch norm, recurrent layers,
#:     attention with a mask), the device-independent ones are shown

# === Channels that are cut off may be those of images
class Cut(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = Own(channels, 4, 3, padding=1)

    def forward(self, x):
        return self.conv(x) + x[:, :4]

class Own(nn.Conv2d):
    pass
#: Cut(init.channels=64, x=f32[4, 64, 32, 32] · search) -> f32[4, 4, 32, 32]

# === What a layer says of a parameter ends where that is bound anew
class Spoken(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.rows, self.conv = nn.Embedding(words, width), nn.Conv1d(width, width, 3)

    def forward(self, x):
        x = self.rows(x).transpose(1, 2)
        return self.conv(x)
#: Spoken(init.words=2, init.width=8, x=i64[4, 8] · search) -> f32[4, 8, 6]

# === A tensor that is asked whether it is true is of one example
# What asks for a value is no mistake that sizes show.
class Stops(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate = nn.Linear(width, 1)

    def forward(self, x):
        if self.gate(x) > 0.5:
        #  ^^^^^^^^^^^^^^^^^^ information[dimension]:
        #  the trace assumes that `self.gate(x) > 0.5` is false: it depends on a tensor's value, and torch.compile
        #  breaks the graph here.
            return x
        return 2 * x
#: Stops(init.width=8 · search; x=f32[1, 1, 8] · search: one example: the code takes one at a time) -> f32[1, 1, 8]

# === An argument by position that is no tensor
def noisy(x, shape):
    return x.sum() + torch.randint(0, 9, shape)
#: noisy(x=f32[4, 64] · search; shape=(1, 1) · search: a value that the operation accepts) -> f32[1, 1]

# === What may be no tensor is no mistake
def spread(places, amounts, size, other):
    grid = torch.sparse_coo_tensor(places, amounts, size, torch.float32, "cpu", False)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ information[inputs]:
    #  TypeError: sparse_coo_tensor() received an invalid combination of arguments - got (Tensor, Tensor, int,
    #  torch.dtype, str, bool), but expected one of (self: f32[4, 64]). The inputs are guessed; write the real ones in
    #  a comment: `# fx: places=f32[4, 64], amounts=f32[32], size=64, other=f32[8, 96]`.
    return torch.matmul(grid, other)
#: spread(places=f32[4, 64], amounts=f32[32], size=64, other=f32[8, 96] · search)

# === Data that is not here is left out of a file
KIND = "small"
if KIND == "small":
    rows = open("rows/that/are/elsewhere.txt").readlines()
    channels = 6
loader = list(rows)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(channels, 5)

    def forward(self, x):
        return self.up(x)
#: Net(x=f32[4, 8, 6] · search) -> f32[4, 8, 5]
#:   note: code that uses missing data was skipped: FileNotFoundError: [Errno 2] No such file or directory:
#:     'rows/that/are/elsewhere.txt'

# === Layers with names of their own
class Scales(nn.Module):
    def __init__(self):
        super().__init__()
        self.models = nn.ModuleList()
        for i in range(2):
            self.models.add_module(f"scale_{i}", nn.Conv2d(5, 8, 3))

    def forward(self, x):
        outputs = []
        for model in self.models:
            outputs.append(model(x))
            x = F.avg_pool2d(x, 2)
        return outputs
#: Scales(x=f32[4, 5, 64, 64] · search) -> f32[4, 8, 62, 62], f32[4, 8, 30, 30]

# === Modules that a variable holds
class Branch(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = blocks

    def forward(self, x):
        blocks = self.blocks
        y = blocks[0](x)
        for i in range(1, len(blocks)):
            y = blocks[i](y)
        return y * 2
#: Branch(init.blocks[0]=nn.Identity(), init.blocks[1]=nn.Identity(), x=f32[4, 8, 64] · search) -> f32[4, 8, 64]

# === Any arguments that are handed on are no mistake
class Source:
    def integers(self, *args, **kwargs):
        return torch.randint(*args, **kwargs)
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ information[inputs]:
        #  TypeError: randint(): argument 'high' (position 1) must be int, not Tensor (self: f32[4, 64]). The inputs
        #  are guessed; write the real ones in a comment: `# fx: args=(f32[4, 64], f32[4, 64])`.
#: Source.integers(args[0]=f32[4, 64], args[1]=f32[4, 64] · search)

# === What a search constructs is no evidence
# The method is looked for in runs of others, whose module cannot be made: no attempt to make it is a call.
kinds = {}

def normalization(channels):
    return nn.GroupNorm(4, channels)

class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = normalization(channels)
        self.attention = kinds["flash"](channels)
        #                ^^^^^^^^^^^^^^ information[construct]:
        #  KeyError: 'flash' (constructing Block). The inputs are guessed; write the real ones in a comment: `# fx:
        #  init(channels=64)`.
        #  line 22: traced Block._forward

    def forward(self, x):
        return self._forward(x) + x

    def _forward(self, x):
        b, _, *spatial = x.shape
        return self.attention(self.norm(x).view(b, -1, *spatial))

    def doubled(self, x):
        b, _, *spatial = x.shape
        return self._forward(x).view(b, -1) * 2

class Net(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.block = Block(channels)

    def forward(self, x):
        return self.block(x)
#: Block._forward(init.channels=64 · search)

# === A constructors none that is computed with is a number
class Kept(nn.Module):
    def __init__(self, drop_prob=None):
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x):
        return x * (1 - self.drop_prob)
#: Kept(init.drop_prob=0.1 · search: the code computes with it; x=f32[4, 8, 64] · search) -> f32[4, 8, 64]

# === What a function of the program needs counts where a parameter is handed on
def halves(pair):
    a, b = pair["images"].chunk(2, 1)
    return a * pair["scale"]

def whole(pair, x: torch.Tensor):
    return halves(pair) + x.mean()
#: whole(pair['images']=f32[64, 64] · search: rank that the operation accepts; pair['scale']=f32[64, 32] · search: sizes
#:   that fit; x=f32[12, 96] · search) -> f32[64, 32]

# === Numbers that a part of a part leaves open
from dataclasses import dataclass

@dataclass
class Sizes:
    width: int = 8
    words: int = -1

class Net(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.words = nn.Embedding(sizes.words, sizes.width)

    def forward(self, tokens):
        return self.words(tokens)

class Sampler:
    def __init__(self, net: Net):
        self.net = net

    def sample(self, tokens: torch.Tensor):
        return self.net(tokens).argmax(-1)
#: Sampler.sample(init.net=Net() · annotation; tokens=i64[4, 8] · search) -> i64[4, 8]

# === What code means by parameters of which it says little
class Layers(nn.Module):
    def __init__(self, dim, depth, causal=False):
        super().__init__()
        self.dim = dim
        self.layers = nn.ModuleList([nn.Linear(dim, dim) for _ in range(depth)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

class Encoder(Layers):
    def __init__(self, **kwargs):
        assert "causal" not in kwargs
        super().__init__(causal=False, **kwargs)

class Wrapper(nn.Module):
    def __init__(self, count, layers):
        super().__init__()
        assert isinstance(layers, Layers), "layers are an Encoder or a Decoder"
        self.words, self.layers = nn.Embedding(count, layers.dim), layers

    def forward(self, tokens):
        return self.layers(self.words(tokens))

class Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run, count, *args):
        ctx.run = run
        return ctx.run(*args[:count]) * 1

    @staticmethod
    def backward(ctx, grad):
        return None, None, grad
        #      ^^^^^^^^^^^^^^^^ error[wrong-gradient]:
        #  `Again.backward` returns 3 gradients for 4 arguments of `forward`: return one, or None, for each.
        #  line 42: traced replayed

def replayed(run, args, flag=True):
    return Again.apply(run, len(args), *args) if flag else run(*args)

def refined(x: torch.Tensor, fn, count=2):
    signal = fn.inverse(x, x.sin()).squeeze(1)
    #        ^^^^^^^^^^^^^^^^^^^^^^ information[inputs]:
    #  TypeError: Tensor.inverse() takes no arguments (2 given). The inputs are guessed; write the real ones in a
    #  comment: `# fx: x=f32[4, 64], fn=f32[8, 32]`.
    for _ in range(count):
        signal = fn.inverse(signal, signal.sin())
    return signal

def hooked(module):
    module.is_hooked = True
    for p in module.parameters():
        p.register_hook(lambda grad: grad * 2)
    return torch.stack([p.sum() for p in module.parameters()])
#: Encoder(init.dim=64, init.depth=2 · search: for super().__init__; x=f32[4, 8, 64] · search) -> f32[4, 8, 64]
#: Wrapper(init.count=8 · search; init.layers=Layers() · annotation; tokens=i64[4, 8] · search) -> f32[4, 8, 64]
#: hooked(module=nn.Linear(64, 64) · search) -> f32[2]
#: refined(x=f32[4, 64], fn=f32[8, 32] · search; count=2 · default)
#: replayed(run=lambda x, *others, **named: x, args[0]=f32[4, 64], args[1]=f32[4, 64] · search; flag=True · default) ->
#:   f32[4, 64]
#:   note: it has no backward graph: `Again.backward` returns 3 gradients for 4 arguments of `forward`: return one, or
#:     None, for each

# === A method that says little is called as its class calls it
class Grid(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj, self.table = nn.Conv2d(3, 16, 4, 4), nn.Parameter(torch.zeros(1, 16, 8, 8))

    def placed(self, x, w, h):
        return x + nn.functional.interpolate(self.table, scale_factor=(w / 32, h / 32)).flatten(2)

    def forward(self, x):
        b, c, w, h = x.shape
        return self.placed(self.proj(x).flatten(2), w, h)
#: Grid.placed(x=f32[4, 16, 256], w=64, h=64 · call site `return self.placed(self.proj(x).flatten(2), w, h)`) -> f32[4,
#:   16, 256]

# === Weights of classes are one for each
def loss(scores, labels, weight, extra):
    return F.nll_loss(scores, labels, weight=weight) + extra.mean(dim=(1, 2)).sum()
#: loss(scores=f32[4, 64] · search; labels=i64[4] · search: sizes that fit; weight=f32[64] · search: sizes that the
#:   operation accepts; extra=f32[2, 12, 96] · search: rank that the operation accepts) -> f32[]

# === A tensor that is stretched over images has a number for each
class Preconditioned(nn.Module):
    def __init__(self, channels=3):
        super().__init__()
        self.model = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x, sigma):
        sigma = sigma.to(torch.float32).reshape(-1, 1, 1, 1)
        return x + self.model(x / (1 + sigma**2).sqrt())
#: Preconditioned(x=f32[12, 3, 8, 64], sigma=f32[12] · search: sizes that fit) -> f32[12, 3, 8, 64]
