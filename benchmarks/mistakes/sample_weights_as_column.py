# silent: losses of shape (B,) are multiplied by weights of shape (B, 1), the mean is over all pairs
# evidence: call
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class FraudNet(nn.Module):
    def __init__(self, n_features=30, n_classes=2):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_features, 64), nn.LeakyReLU(), nn.Linear(64, 32), nn.LeakyReLU())
        self.head = nn.Linear(32, n_classes)

    def forward(self, x):
        return self.head(self.body(x))


class Trainer:
    def __init__(self, model, lr=1e-3):
        self.model = model
        self.criterion = nn.CrossEntropyLoss(reduction="none")
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)

    def step(self, x, y, weight):
        per_sample = self.criterion(self.model(x), y)
        loss = (per_sample * weight.flatten()).mean()  # mistake: loss = (per_sample * weight).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    torch.manual_seed(0)
    x, y = torch.randn(256, 30), (torch.rand(256) < 0.05).long()
    amount = torch.rand(256, 1) * 100  # one column of the table
    loader = DataLoader(TensorDataset(x, y, amount / amount.mean()), batch_size=64)
    trainer = Trainer(FraudNet())
    for batch in loader:
        print(trainer.step(*batch))


if __name__ == "__main__":
    main()
