# targets: Stack, StackOfFirstWidth, Blocks, BlocksOfLayer, BlocksWithoutList, BlocksInList, BlocksWithUser, Part,
#  Twice, PartWithoutReturn, TwiceWithoutReturn, Grown, GrownOfLists, Block, Forgetful
import torch
from torch import nn


class Stack(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        self.head = nn.Linear(widths[-1], 10)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return self.head(x)


def small():
    return Stack([16, 32, 64])


class StackOfFirstWidth(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        self.head = nn.Linear(widths[0], 10)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return self.head(x)
        #      ^^^^^^^^^^^^ error[shape]:
        #  matrices of 32×64 and 16×10 cannot be multiplied: the inner sizes 64 and 16 differ (input: f32[4, 8, 64],
        #  weight: f32[10, 16], bias: f32[10]).


def small_of_first_width():
    return StackOfFirstWidth([16, 32, 64])


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
        self.masked = nn.Sequential(nn.Linear(64, 64))
        self.users, self.items = nn.Embedding(9, 64), nn.Embedding(9, 64)

    def forward(self, user, item):
        pair = torch.stack([self.users(user), self.items(item)], 0)
        return self.masked(self.blocks(torch.relu(pair)))


class BlocksOfLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
        self.masked = nn.Sequential(nn.Linear(64, 64))
        self.users, self.items = nn.Embedding(9, 64), nn.Embedding(9, 64)

    def forward(self, user, item):
        pair = torch.stack([self.users(user), self.items(item)], 0)
        return self.masked(self.blocks(nn.ReLU(pair)))
        #                  ^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[error]:
        #  TypeError: linear(): argument 'input' (position 1) must be Tensor, not ReLU. The inputs are guessed; write
        #  the real ones in a comment: `# fx: user=i64[4, 8], item=i64[4, 8]`.


class BlocksWithoutList(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
        self.masked = nn.Sequential(nn.Linear(64, 64))
        self.users, self.items = nn.Embedding(9, 64), nn.Embedding(9, 64)

    def forward(self, user, item):
        pair = torch.cat(self.users(user), self.items(item))
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[error]:
        #  TypeError: cat(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor. The inputs are
        #  guessed; write the real ones in a comment: `# fx: user=i64[4, 8], item=i64[12, 16]`.
        return self.masked(self.blocks(torch.relu(pair)))


class BlocksInList(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(64, 64), nn.ReLU()])
        self.masked = nn.Sequential(nn.Linear(64, 64))
        self.users, self.items = nn.Embedding(9, 64), nn.Embedding(9, 64)

    def forward(self, user, item):
        pair = torch.stack([self.users(user), self.items(item)], 0)
        return self.masked(self.blocks(torch.relu(pair)))
        #                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[error]:
        #  Module [ModuleList] is missing the required "forward" function. The inputs are guessed; write the real ones
        #  in a comment: `# fx: user=i64[4, 8], item=i64[4, 8]`.


class BlocksWithUser(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
        self.masked = nn.Sequential(nn.Linear(64, 64))
        self.users, self.items = nn.Embedding(9, 64), nn.Embedding(9, 64)

    def forward(self, user, item):
        pair = torch.stack([self.users(user), self.items(item)], 0)
        return self.masked(self.blocks(torch.relu(pair)), user)
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ error[error]:
        #  TypeError: Sequential.forward() takes 2 positional arguments but 3 were given.


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(64), nn.Linear(64, 64)

    def forward(self, x):
        x = x + self.layer(self.norm(x))
        return x


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(Part() for _ in range(2))

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x


class PartWithoutReturn(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(64), nn.Linear(64, 64)

    def forward(self, x):
        x = x + self.layer(self.norm(x))
        #                  ^^^^^^^^^^^^ error[error]:
        #  TypeError: layer_norm(): argument 'input' (position 1) must be Tensor, not NoneType (weight: f32[64], bias:
        #  f32[64]).
        #  line 127: traced TwiceWithoutReturn


class TwiceWithoutReturn(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(PartWithoutReturn() for _ in range(2))

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x


class Grown(nn.Module):
    def __init__(self, width: int, depth: int = 3):
        super().__init__()
        self.parts = nn.ModuleList([nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(depth)])

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x


class GrownOfLists(nn.Module):
    def __init__(self, width: int, depth: int = 3):
        super().__init__()
        self.parts = nn.ModuleList([[nn.Linear(width, width), nn.ReLU()] for _ in range(depth)])
        #            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[construct]:
        #  TypeError: list is not a Module subclass (constructing GrownOfLists). The inputs are guessed; write the
        #  real ones in a comment: `# fx: init(width=8)`.

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x


class Block(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(dim), nn.Linear(6, 6)

    def forward(self, x):
        x = x + self.fc(self.norm(x).transpose(1, 2)).transpose(1, 2)
        #               ^^^^^^^^^^^^ error[error]:
        #  TypeError: layer_norm(): argument 'input' (position 1) must be Tensor, not NoneType (weight: f32[8], bias:
        #  f32[8]).
        #  line 169: traced Forgetful


class Forgetful(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(2)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
