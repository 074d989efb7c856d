# crash: affine_grid wants matrices (B, 2, 3), the localization network returns rows of six numbers
# evidence: call
import torch
import torch.nn as nn
import torch.nn.functional as F


class SpatialTransformerNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.localization = nn.Sequential(
            nn.Conv2d(1, 8, kernel_size=7),
            nn.MaxPool2d(2, stride=2),
            nn.ReLU(True),
            nn.Conv2d(8, 10, kernel_size=5),
            nn.MaxPool2d(2, stride=2),
            nn.ReLU(True),
        )
        self.fc_loc = nn.Sequential(nn.Linear(10 * 3 * 3, 32), nn.ReLU(True), nn.Linear(32, 2 * 3))
        self.fc_loc[2].weight.data.zero_()
        self.fc_loc[2].bias.data.copy_(torch.tensor([1, 0, 0, 0, 1, 0], dtype=torch.float))
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 64), nn.ReLU(), nn.Linear(64, 10))

    def stn(self, x):
        xs = self.localization(x).flatten(1)
        theta = self.fc_loc(xs)
        theta = theta.view(-1, 2, 3)  # mistake: pass
        grid = F.affine_grid(theta, x.size(), align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)

    def forward(self, x):
        x = self.stn(x)
        return F.log_softmax(self.classifier(x), dim=1)


def train(model, optimizer, batches=2):
    model.train()
    for _ in range(batches):
        data, target = torch.rand(32, 1, 28, 28), torch.randint(0, 10, (32,))
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    model = SpatialTransformerNet()
    train(model, torch.optim.SGD(model.parameters(), lr=0.01))
