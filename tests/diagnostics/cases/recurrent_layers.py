# targets: Tagger, TaggerOfTuple, Sequences, SequencesOfOtherBatch, Classifier, ClassifierOfOneDirection, Stateful,
#  StatefulWithView, LastStates, LastStatesOfAllLayers, Directions, DirectionsOfOneState
import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.rnn, self.head = nn.Embedding(100, 16), nn.LSTM(16, 32), nn.Linear(32, 5)

    def forward(self, ids):
        states, _ = self.rnn(self.words(ids))
        return self.head(states)


class TaggerOfTuple(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.rnn, self.head = nn.Embedding(100, 16), nn.LSTM(16, 32), nn.Linear(32, 5)

    def forward(self, ids):
        states = self.rnn(self.words(ids))
        return self.head(states)
        #      ^^^^^^^^^^^^^^^^^ error[error]:
        #  TypeError: linear(): argument 'input' (position 1) must be Tensor, not tuple.


class Sequences(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.rnn = nn.GRU(width, 2 * width, batch_first=True)

    def forward(self, x):
        start = torch.zeros(1, x.size(0), self.rnn.hidden_size)
        return self.rnn(x, start)[0]


class SequencesOfOtherBatch(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.rnn = nn.GRU(width, 2 * width, batch_first=True)

    def forward(self, x):
        start = torch.zeros(1, x.size(1), self.rnn.hidden_size)
        return self.rnn(x, start)[0]
        #      ^^^^^^^^^^^^^^^^^^ warning[dimension]:
        #  `self.rnn(x, start)` only works when x.shape[1] == x.shape[0]. Is a dimension missing or swapped?


class Classifier(nn.Module):
    def __init__(self, width, hidden, classes):
        super().__init__()
        self.rnn = nn.LSTM(width, hidden, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * hidden, classes)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


class ClassifierOfOneDirection(nn.Module):
    def __init__(self, width, hidden, classes):
        super().__init__()
        self.rnn = nn.LSTM(width, hidden, bidirectional=True, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[dimension]:
        #  `self.head(self.rnn(x)[0][:, -1])` only works when x.shape[0] == init.hidden. Is a dimension missing or
        #  swapped?


class Stateful(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.words, self.rnn, self.head = nn.Embedding(words, 32), nn.LSTM(32, 48, 2), nn.Linear(48, words)

    def forward(self, ids, state):
        y, state = self.rnn(self.words(ids).transpose(0, 1), state)
        return self.head(y.transpose(0, 1).reshape(-1, 48)), state


class StatefulWithView(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.words, self.rnn, self.head = nn.Embedding(words, 32), nn.LSTM(32, 48, 2), nn.Linear(48, words)

    def forward(self, ids, state):
        y, state = self.rnn(self.words(ids).transpose(0, 1), state)
        return self.head(y.transpose(0, 1).view(-1, 48)), state
        #                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[shape]:
        #  Cannot view a tensor with shape torch.Size([48, 32]) and strides (1, 48) as a tensor with shape (32, 48)!
        #  (y.transpose(0, 1): f32[48, 32](1, 48)). The inputs are guessed; write the real ones in a comment: `# fx:
        #  init(words=2), ids=i64[32], state=f32[12, 2, 48]`.


class LastStates(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.words, self.rnn = nn.Embedding(100, 32), nn.LSTM(32, 48, layers, batch_first=True)
        self.head = nn.Linear(48, 5)

    def forward(self, text):
        state = self.rnn(self.words(text))[1][0]
        return self.head(state[-1])


class LastStatesOfAllLayers(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.words, self.rnn = nn.Embedding(100, 32), nn.LSTM(32, 48, layers, batch_first=True)
        self.head = nn.Linear(48, 5)

    def forward(self, text):
        state = self.rnn(self.words(text))[1][0]
        return self.head(state.transpose(0, 1).flatten(1))
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ error[shape]:
        #  matrices of 4×96 and 48×5 cannot be multiplied: the inner sizes 96 and 48 differ (input: f32[4, 96],
        #  weight: f32[5, 48], bias: f32[5]).


class Directions(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(40, 16, bidirectional=True, batch_first=True)

    def forward(self, x):
        start = x.new_zeros(2, x.size(0), 16)
        return self.rnn(x, (start, start))[0]


class DirectionsOfOneState(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(40, 16, bidirectional=True, batch_first=True)

    def forward(self, x):
        start = x.new_zeros(1, x.size(0), 16)
        return self.rnn(x, (start, start))[0]
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^ error[error]:
        #  For unbatched 2-D input, hx and cx should also be 2-D but got (3-D, 3-D) tensors.
