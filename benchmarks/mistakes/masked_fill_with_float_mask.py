# crash: masked_fill takes only boolean masks, a mask of zeros and ones in float is refused
# evidence: none
import torch
import torch.nn as nn


class AdditiveAttentionPool(nn.Module):
    def __init__(self, input_dim, attention_dim=64):
        super().__init__()
        self.proj = nn.Linear(input_dim, attention_dim)
        self.context = nn.Linear(attention_dim, 1, bias=False)

    def forward(self, inputs, lengths):
        # inputs: (B, T, D); lengths: (B,)
        steps = torch.arange(inputs.size(1), device=inputs.device)
        valid = (steps[None, :] < lengths[:, None]).float()
        scores = self.context(torch.tanh(self.proj(inputs))).squeeze(-1)
        scores = scores.masked_fill(valid == 0, -1e9)  # mistake: scores = scores.masked_fill(1.0 - valid, -1e9)
        weights = torch.softmax(scores, dim=-1) * valid
        return torch.bmm(weights.unsqueeze(1), inputs).squeeze(1), weights


class DocumentEncoder(nn.Module):
    def __init__(self, embed_dim, hidden):
        super().__init__()
        self.rnn = nn.GRU(embed_dim, hidden, batch_first=True, bidirectional=True)
        self.pool = AdditiveAttentionPool(2 * hidden)

    def forward(self, x, lengths):
        out, _ = self.rnn(x)
        return self.pool(out, lengths)[0]


# run:
DocumentEncoder(16, 24)(torch.randn(5, 11, 16), torch.tensor([11, 3, 7, 9, 1])).sum().backward()
