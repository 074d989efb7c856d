# crash: lengths of a random split are both rounded down, "Sum of input lengths does not equal ..."
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


def loaders(data, share=0.85, batch_size=16):
    n_train = int(share * len(data))
    n_test = len(data) - n_train  # mistake: n_test = int((1 - share) * len(data))
    train_set, test_set = torch.utils.data.random_split(data, [n_train, n_test])
    return DataLoader(train_set, batch_size, shuffle=True), DataLoader(test_set, batch_size)


def main():
    data = TensorDataset(torch.randn(150, 20), torch.randint(0, 10, (150,)))
    train_loader, test_loader = loaders(data)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in train_loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    for x, y in test_loader:
        print((model(x).argmax(1) == y).float().mean().item())


main()
