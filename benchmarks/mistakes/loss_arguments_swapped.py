# crash: the loss is called with the labels first
# evidence: call
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class DigitNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(16 * 14 * 14, 10)

    def forward(self, x):
        x = self.pool(torch.relu(self.conv(x)))
        return self.fc(x.flatten(1))


def main():
    data = TensorDataset(torch.rand(64, 1, 28, 28), torch.randint(0, 10, (64,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model, criterion = DigitNet(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters())
    for images, labels in loader:
        output = model(images)
        loss = criterion(output, labels)  # mistake: loss = criterion(labels, output)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
