# crash: the state of a decoder is added to the states of an encoder without a dimension for time
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class AdditiveAttention(nn.Module):
    def __init__(self, hidden_size):
        super().__init__()
        self.Wa = nn.Linear(hidden_size, hidden_size)
        self.Ua = nn.Linear(hidden_size, hidden_size)
        self.Va = nn.Linear(hidden_size, 1)

    def forward(self, query, keys):
        """query: (batch, hidden), keys: (batch, length, hidden)"""
        query = self.Wa(query).unsqueeze(1)  # mistake: query = self.Wa(query)
        scores = self.Va(torch.tanh(query + self.Ua(keys)))
        weights = F.softmax(scores.squeeze(2), dim=-1)
        context = torch.bmm(weights.unsqueeze(1), keys)
        return context.squeeze(1), weights


# run:
AdditiveAttention(32)(torch.randn(4, 32), torch.randn(4, 9, 32))[0].sum().backward()
