# crash: all parameters are frozen, also those of the new head, so that the loss has no gradient
# evidence: call
import torch
from torch import nn


class Backbone(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.width = width
        self.layers = nn.Sequential(nn.Conv2d(3, width, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.fc = nn.Linear(width, 1000)

    def forward(self, x):
        return self.fc(self.layers(x))


def transfer(classes):
    model = Backbone()
    model.fc = nn.Linear(model.width, classes)
    for parameter in model.layers.parameters():  # mistake: for parameter in model.parameters():
        parameter.requires_grad = False
    return model


def main():
    model = transfer(5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        images, labels = torch.rand(8, 3, 32, 32), torch.randint(0, 5, (8,))
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
