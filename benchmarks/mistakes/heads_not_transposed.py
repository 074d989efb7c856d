# crash: the heads are split off but not moved before the positions, so that the scores are heads x heads
# evidence: none
import torch
import torch.nn as nn


class RelativeSelfAttention(nn.Module):
    """Self-attention with a learned bias for each distance (T5-style, not bucketed)."""

    def __init__(self, d_model, n_heads=8, max_distance=128):
        super().__init__()
        self.n_heads = n_heads
        self.d_head = d_model // n_heads
        self.max_distance = max_distance
        self.query = nn.Linear(d_model, d_model, bias=False)
        self.key = nn.Linear(d_model, d_model, bias=False)
        self.value = nn.Linear(d_model, d_model, bias=False)
        self.o = nn.Linear(d_model, d_model, bias=False)
        self.relative_bias = nn.Embedding(2 * max_distance + 1, n_heads)

    def shape(self, states):
        states = states.view(states.size(0), -1, self.n_heads, self.d_head)
        return states.transpose(1, 2)  # mistake: return states

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.shape(self.query(x)), self.shape(self.key(x)), self.shape(self.value(x))
        scores = torch.matmul(q, k.transpose(3, 2))
        pos = torch.arange(t, device=x.device)
        distance = (pos[None, :] - pos[:, None]).clamp(-self.max_distance, self.max_distance)
        scores = scores + self.relative_bias(distance + self.max_distance).permute(2, 0, 1)
        out = torch.matmul(scores.softmax(-1), v)
        return self.o(out.transpose(1, 2).reshape(b, t, d))


# run:
RelativeSelfAttention(64)(torch.randn(2, 19, 64)).sum().backward()
