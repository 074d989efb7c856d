# crash: layers kept in a Python list are not registered, "optimizer got an empty parameter list"
# evidence: call
from itertools import pairwise

import torch
import torch.nn as nn


class DeepMLP(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
        self.layers = nn.ModuleList(layers)  # mistake: self.layers = layers
        self.activation = nn.ReLU()

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)


class Trainer:
    def __init__(self, model, lr=1e-3, device="cpu"):
        self.device = torch.device(device)
        self.model = model.to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.criterion = nn.CrossEntropyLoss()

    def step(self, x, y):
        x, y = x.to(self.device), y.to(self.device)
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    trainer = Trainer(DeepMLP([64, 128, 128, 5]))
    for _ in range(3):
        loss = trainer.step(torch.randn(32, 64), torch.randint(0, 5, (32,)))
    print(loss)


if __name__ == "__main__":
    main()
