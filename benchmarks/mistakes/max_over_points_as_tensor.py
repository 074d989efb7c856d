# crash: max over a dimension returns values and indices, and the pair is given to a linear layer
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class PointNetCls(nn.Module):
    def __init__(self, k=40, feature_transform=False):
        super().__init__()
        self.feature_transform = feature_transform
        self.conv1 = nn.Conv1d(3, 64, 1)
        self.conv2 = nn.Conv1d(64, 128, 1)
        self.conv3 = nn.Conv1d(128, 1024, 1)
        self.bn1 = nn.BatchNorm1d(64)
        self.bn2 = nn.BatchNorm1d(128)
        self.bn3 = nn.BatchNorm1d(1024)
        self.fc1 = nn.Linear(1024, 256)
        self.dropout = nn.Dropout(p=0.3)
        self.fc2 = nn.Linear(256, k)

    def forward(self, x):
        # x: (batch, 3, points)
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        x = torch.max(x, 2)[0]  # mistake: x = torch.max(x, 2)
        x = F.relu(self.dropout(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


# run:
PointNetCls(10)(torch.randn(4, 3, 200)).sum().backward()
