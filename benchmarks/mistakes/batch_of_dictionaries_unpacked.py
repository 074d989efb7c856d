# crash: the data set gives dictionaries, whose keys the loop takes for image and label
# evidence: call
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Plants(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, i):
        return {"image": torch.rand(3, 32, 32), "label": i % 5}


class PlantNet(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2)
        self.fc = nn.Linear(8, classes)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).mean(dim=(2, 3)))


def train(device="cpu"):
    loader = DataLoader(Plants(), batch_size=16)
    model = PlantNet().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in loader:
        images, labels = batch["image"], batch["label"]  # mistake: images, labels = batch
        images, labels = images.to(device), labels.to(device)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    train()
