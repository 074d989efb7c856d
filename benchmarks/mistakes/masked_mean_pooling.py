# crash: the token embeddings are multiplied by a mask without the hidden dimension, asked about with sentence encoders
# evidence: none
import torch
import torch.nn.functional as F
from torch import nn


class MeanPooler(nn.Module):
    def __init__(self, hidden_size, out_size, normalize=True):
        super().__init__()
        self.dense = nn.Linear(hidden_size, out_size)
        self.normalize = normalize

    def forward(self, hidden_states, attention_mask):
        """
        hidden_states: (batch_size, seq_len, hidden_size)
        attention_mask: (batch_size, seq_len)
        """
        mask = attention_mask.unsqueeze(-1).float()  # mistake: mask = attention_mask.float()
        summed = (hidden_states * mask).sum(dim=1)
        counts = mask.sum(dim=1).clamp(min=1e-9)
        pooled = torch.tanh(self.dense(summed / counts))
        if self.normalize:
            pooled = F.normalize(pooled, p=2, dim=-1)
        return pooled


# run:
mask = (torch.arange(24) < torch.tensor([[24], [10], [3], [17]])).long()
MeanPooler(96, 32)(torch.randn(4, 24, 96), mask).sum().backward()
