# crash: a loss with reduction="none" is not averaged before .backward(), "grad can be created only for scalar outputs"
# evidence: call
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class DemandModel(nn.Module):
    """Demand of many products at once; missing values are masked."""

    def __init__(self, n_inputs=24, n_products=12, hidden=64):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(n_inputs, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, n_products),
        )

    def forward(self, x):
        return self.layers(x)


def train_step(model, optimizer, x, y, observed):
    criterion = nn.MSELoss(reduction="none")
    loss = criterion(model(x), y) * observed
    loss = loss.sum() / observed.sum()  # mistake: loss = loss / observed.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def main():
    x, y = torch.randn(128, 24), torch.randn(128, 12)
    observed = (torch.rand(128, 12) > 0.2).float()
    model = DemandModel()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for batch in DataLoader(TensorDataset(x, y, observed), batch_size=32, shuffle=True):
        loss = train_step(model, optimizer, *batch)
    print(loss)


if __name__ == "__main__":
    main()
