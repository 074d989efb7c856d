# crash: points are multiplied with a transformation while their coordinates are in rows
# evidence: none
import torch
import torch.nn as nn


class TransformNet(nn.Module):
    def __init__(self, k=3):
        super().__init__()
        self.k = k
        self.conv = nn.Conv1d(k, 64, 1)
        self.fc = nn.Linear(64, k * k)

    def forward(self, x):
        x = torch.relu(self.conv(x)).amax(dim=2)
        return self.fc(x).view(-1, self.k, self.k) + torch.eye(self.k, device=x.device)


class PointNet(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.align = TransformNet(3)
        self.conv = nn.Conv1d(3, 128, 1)
        self.fc = nn.Linear(128, num_classes)

    def forward(self, x):
        trans = self.align(x)
        x = torch.bmm(x.transpose(2, 1), trans).transpose(2, 1)  # mistake: x = torch.bmm(x, trans)
        return self.fc(torch.relu(self.conv(x)).amax(dim=2))


# run:
PointNet()(torch.randn(4, 3, 100)).sum().backward()
