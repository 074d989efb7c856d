# targets: Tokens, TokensOfOne, Branches, BranchesAlongHeight, Critic, CriticOfStates, Gates, GatesOfInput, Queries,
#  QueriesOfRows, Pair, PairWithoutDifference
import torch
from torch import nn


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.zeros(1, 1, 32))

    def forward(self, x):
        first = self.first.expand(x.shape[0], -1, -1)
        return torch.cat([first, x], 1)


class TokensOfOne(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.zeros(1, 1, 32))

    def forward(self, x):
        first = self.first
        return torch.cat([first, x], 1)
        #      ^^^^^^^^^^^^^^^^^^^^^^^^ warning[dimension]:
        #  `torch.cat([first, x], 1)` only works when x.shape[0] == 1. Is a dimension missing or swapped?


class Branches(nn.Module):
    def __init__(self, channels, narrow, wide):
        super().__init__()
        self.first, self.second = nn.Conv2d(channels, narrow, 1), nn.Conv2d(channels, wide, 3, padding=1)

    def forward(self, x):
        return torch.cat([self.first(x), self.second(x)], 1)


class BranchesAlongHeight(nn.Module):
    def __init__(self, channels, narrow, wide):
        super().__init__()
        self.first, self.second = nn.Conv2d(channels, narrow, 1), nn.Conv2d(channels, wide, 3, padding=1)

    def forward(self, x):
        return torch.cat([self.first(x), self.second(x)], 2)
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[dimension]:
        #  `torch.cat([self.first(x), self.second(x)], 2)` only works when init.wide == init.narrow. Is a dimension
        #  missing or swapped?


class Critic(nn.Module):
    def __init__(self, state_dim, action_dim):
        super().__init__()
        self.value = nn.Linear(state_dim + action_dim, 1)

    def forward(self, states, action):
        return self.value(torch.cat([states, action], -1)).squeeze(-1)


class CriticOfStates(nn.Module):
    def __init__(self, state_dim, action_dim):
        super().__init__()
        self.value = nn.Linear(state_dim, 1)

    def forward(self, states, action):
        return self.value(torch.cat([states, action], -1)).squeeze(-1)
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[dimension]:
        #  `self.value(torch.cat([states, action], -1))` only works when states.shape[2] == 32, but state_dim is 64.


class Gates(nn.Module):
    def __init__(self, input_dim, hidden_dim):
        super().__init__()
        self.hidden_dim, self.gates = hidden_dim, nn.Conv2d(input_dim + hidden_dim, hidden_dim, 3, padding=1)

    def forward(self, x):
        state = x.new_zeros(x.size(0), self.hidden_dim, x.size(2), x.size(3))
        return self.gates(torch.cat([x, state], dim=1))


class GatesOfInput(nn.Module):
    def __init__(self, input_dim, hidden_dim):
        super().__init__()
        self.hidden_dim, self.gates = hidden_dim, nn.Conv2d(input_dim, hidden_dim, 3, padding=1)

    def forward(self, x):
        state = x.new_zeros(x.size(0), self.hidden_dim, x.size(2), x.size(3))
        return self.gates(torch.cat([x, state], dim=1))
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[dimension]:
        #  `self.gates(torch.cat([x, state], dim=1))` only works when x.shape[1] == 64, but input_dim is 128.


class Queries(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.queries = nn.Parameter(torch.zeros(32, width))
        self.norm, self.layer = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        queries = self.queries.expand(x.shape[0], -1, -1)
        return self.layer(torch.cat([self.norm(x), queries], 1))


class QueriesOfRows(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.queries = nn.Parameter(torch.zeros(32, width))
        self.norm, self.layer = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        queries = self.queries.expand(x.shape[0], -1)
        #         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[shape]:
        #  `self.queries.expand(x.shape[0], -1)` only works when x.shape[0] == 32. Is a dimension missing or swapped?
        #  The inputs are guessed; write the real ones in a comment: `# fx: init(width=8), x=f32[32, 8]`.
        return self.layer(torch.cat([self.norm(x), queries], 1))


class Pair(nn.Module):
    def __init__(self, words, width, classes):
        super().__init__()
        self.words, self.rnn = nn.Embedding(words, width), nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(3 * width, classes)

    def forward(self, first, second):
        u, v = (self.rnn(self.words(tokens))[1][-1] for tokens in (first, second))
        return self.head(torch.cat([u, v, (u - v).abs()], 1))


class PairWithoutDifference(nn.Module):
    def __init__(self, words, width, classes):
        super().__init__()
        self.words, self.rnn = nn.Embedding(words, width), nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, first, second):
        u, v = (self.rnn(self.words(tokens))[1][-1] for tokens in (first, second))
        return self.head(torch.cat([u, v, (u - v).abs()], 1))
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[shape]:
        #  matrices of 4×24 and 16×1000 cannot be multiplied: the inner sizes 24 and 16 differ (input: f32[4, 24],
        #  weight: f32[1000, 16], bias: f32[1000]). The inputs are guessed; write the real ones in a comment: `# fx:
        #  init(words=2, width=8, classes=1000), first=i64[4, 64], second=i64[4, 32]`.
