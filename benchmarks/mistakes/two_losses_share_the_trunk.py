# crash: two losses go back through one trunk, "backward through the graph a second time"
# evidence: call
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, n_in=20, hidden=64, n_out=10):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, n_out)

    def forward(self, x):
        return self.head(self.body(x))


class Age(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.net = Net(n_out=hidden)
        self.age, self.sex = nn.Linear(hidden, 1), nn.Linear(hidden, 2)

    def forward(self, x):
        h = self.net(x)
        return self.age(h).squeeze(1), self.sex(h)


def train(model, loader):
    optimizer = torch.optim.Adam(model.parameters())
    for x, age, sex in loader:
        predicted_age, predicted_sex = model(x)
        loss_age = F.l1_loss(predicted_age, age)
        loss_sex = F.cross_entropy(predicted_sex, sex)
        optimizer.zero_grad()
        loss_age.backward(retain_graph=True)  # mistake: loss_age.backward()
        loss_sex.backward()
        optimizer.step()


if __name__ == "__main__":
    data = TensorDataset(torch.randn(64, 20), torch.rand(64) * 80, torch.randint(0, 2, (64,)))
    train(Age(), DataLoader(data, batch_size=16))
