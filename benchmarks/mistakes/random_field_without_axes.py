# crash: the scores of a conditional random field are added to its transitions without an axis for the previous tag
# evidence: none
import torch
import torch.nn as nn


class CRF(nn.Module):
    def __init__(self, num_tags):
        super().__init__()
        self.num_tags = num_tags
        self.transitions = nn.Parameter(torch.randn(num_tags, num_tags))
        self.start = nn.Parameter(torch.randn(num_tags))
        self.end = nn.Parameter(torch.randn(num_tags))

    def partition(self, emissions):
        batch, length, _ = emissions.shape
        score = self.start + emissions[:, 0]
        for step in range(1, length):
            inner = score.unsqueeze(2) + self.transitions  # mistake: inner = score + self.transitions
            score = torch.logsumexp(inner, dim=1) + emissions[:, step]
        return torch.logsumexp(score + self.end, dim=1)

    def forward(self, emissions):
        return self.partition(emissions).mean()


# run:
CRF(7)(torch.randn(4, 12, 7, requires_grad=True)).backward()
