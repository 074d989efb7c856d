# targets: WordsWithStates
import torch
from torch import nn


class WordsWithStates(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(100, 16), nn.LSTM(16, 32, batch_first=True)

    def forward(self, words, states):
        return self.lstm(self.embed(words), states)[0]


net = WordsWithStates()
states = (torch.zeros(1, 20, 32), torch.zeros(1, 20, 32))
net(read_words("train.txt"), states)
#   ^^^^^^^^^^ error[error]: NameError: name 'read_words' is not defined.
