# targets: Encoder, classify, second, normed, activated, wrong, trained.once
import torch
import torch.nn.functional as F
from torch import nn

PARAMETERS = {"width": 4}


class Encoder(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.up = nn.Linear(3, width)

    def forward(self, x):
        return self.up(x).relu()


def build(width):
    head = nn.Linear(width, 2)
    return nn.ModuleDict({"encoder": Encoder(width), "head": head})


parts = build(4)
heads = [nn.Linear(4, 2), nn.Linear(4, 3)]
norm = {True: nn.LayerNorm(4), False: nn.Identity()}
encode = torch.compile(parts["encoder"])
activation = F.gelu
table = torch.arange(12).reshape(3, 4)
label = str(PARAMETERS)


def classify(x):
    return parts["head"](parts["encoder"].up(x))


def second(x):
    return heads[1](encode(x))


def normed(x, use_norm=True):
    return norm[use_norm](x)


def rows(index):
    return table[index]


def activated(x):
    return activation(x)


def wrong(x: torch.Tensor):
    return heads[0](heads[1](encode(x)))
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ error[shape]:
    #  matrices of 4×3 and 4×2 cannot be multiplied: the inner sizes 3 and 4 differ (input: f32[4, 3], weight: f32[2,
    #  4], bias: f32[2]).


def trained(x):
    local = nn.Linear(3, 3)

    def once(y):
        return local(y)

    return once(x)


def plain(text):
    return label.replace(text, "")


def shadowed(activation, heads):
    return activation(heads)


def width_of(name):
    return PARAMETERS.get(name)


if __name__ == "__main__":
    inputs = torch.randn(5, 3)
    print(classify(inputs), second(inputs), normed(torch.randn(2, 4)), activated(inputs), trained(inputs))
    print(plain("a"), shadowed(len, "abc"), width_of("width"), rows(torch.tensor([0, 1])))
