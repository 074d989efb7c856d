# crash: the state of truncated backpropagation keeps its graph, "Trying to backward through the graph a second time"
# evidence: call
import torch
import torch.nn as nn


class NextStep(nn.Module):
    def __init__(self, n_in=3, hidden=32):
        super().__init__()
        self.rnn = nn.GRU(n_in, hidden, batch_first=True)
        self.out = nn.Linear(hidden, n_in)

    def forward(self, x, h=None):
        y, h = self.rnn(x, h)
        return self.out(y), h


def train_tbptt(model, series, chunk=25, lr=1e-3):
    """Truncated backpropagation through time over one long series (batch, time, features)."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    h = None
    losses = []
    for start in range(0, series.size(1) - chunk - 1, chunk):
        x = series[:, start : start + chunk]
        y = series[:, start + 1 : start + chunk + 1]
        pred, h = model(x, h)
        loss = nn.functional.mse_loss(pred, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        h = h.detach()  # mistake: pass
        losses.append(loss.item())
    return losses


time = torch.linspace(0, 20, 201)
series = torch.stack([torch.sin(time * f) for f in (1.0, 1.7, 2.3)], dim=-1).repeat(4, 1, 1)
losses = train_tbptt(NextStep(), series)
