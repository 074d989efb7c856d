# crash: images from NumPy are (height, width, channels), "expected 3 channels, but got 64 channels instead"
# evidence: call
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Satellite(Dataset):
    """Tiles of 64 x 64 pixels with three bands, uint8 as they are in the file."""

    def __init__(self, tiles: np.ndarray, labels: np.ndarray):
        self.tiles, self.labels = tiles, labels

    def __len__(self) -> int:
        return len(self.tiles)

    def __getitem__(self, index: int):
        tile = torch.from_numpy(self.tiles[index]).float() / 255
        tile = tile.permute(2, 0, 1)  # mistake: pass
        return tile, int(self.labels[index])


class TileNet(nn.Module):
    def __init__(self, num_classes: int = 10):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
        )
        self.head = nn.Linear(32, num_classes)

    def forward(self, x):
        return self.head(self.body(x).mean(dim=(-2, -1)))


def main():
    rng = np.random.default_rng(7)
    tiles = rng.integers(0, 256, (48, 64, 64, 3), dtype=np.uint8)
    loader = DataLoader(Satellite(tiles, rng.integers(0, 10, 48)), batch_size=16, shuffle=True)
    model = TileNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
