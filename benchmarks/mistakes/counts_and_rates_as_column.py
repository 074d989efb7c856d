# silent: rates (B, 1) against counts (B,) make a Poisson loss over all pairs
# evidence: call
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class SpikeRate(nn.Module):
    def __init__(self, features=20):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(features, 64), nn.Softplus(), nn.Linear(64, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)  # mistake: return self.net(x)


def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(128, 20), torch.poisson(torch.rand(128) * 4))
    model, criterion = SpikeRate(), nn.PoissonNLLLoss(log_input=True)
    optimizer = torch.optim.Adam(model.parameters())
    for stimulus, counts in DataLoader(data, batch_size=32):
        log_rate = model(stimulus)
        loss = criterion(log_rate, counts)  # effect
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{loss.item():.4f}")


if __name__ == "__main__":
    main()
