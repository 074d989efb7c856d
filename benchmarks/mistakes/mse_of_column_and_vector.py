# silent: predictions (B, 1) against targets (B,) make a loss over (B, B), the most asked about broadcast of all
# evidence: call
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class HousePriceNet(nn.Module):
    def __init__(self, n_features=8):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(n_features, 64),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(64, 32),
            nn.ReLU(),
            nn.Linear(32, 1),
        )

    def forward(self, x):
        return self.net(x)


def train(epochs=2, batch_size=32):
    torch.manual_seed(0)
    x = torch.randn(256, 8)
    y = x @ torch.randn(8) + 0.1 * torch.randn(256)
    loader = DataLoader(TensorDataset(x, y), batch_size=batch_size, shuffle=True)
    model = HousePriceNet()
    criterion = nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        running = 0.0
        for features, price in loader:
            optimizer.zero_grad()
            pred = model(features)
            loss = criterion(pred.squeeze(1), price)  # mistake: loss = criterion(pred, price)
            loss.backward()
            optimizer.step()
            running += loss.item()
        print(f"epoch {epoch}: {running / len(loader):.4f}")


if __name__ == "__main__":
    train()
