# targets: Convolved, Rows, Weighted, Scores, Scores.scores, Dilated
import torch
from torch import nn


class Convolved(nn.Module):
    def __init__(self, in_channels: int = 3):
        super().__init__()
        self.in_channels, self.conv = in_channels, nn.Conv2d(in_channels, 8, 3)

    def forward(self, x):
        return self.conv(x)


class Rows(nn.Module):
    def __init__(self, net: Convolved):
        super().__init__()
        self.net, self.table = net, nn.Parameter(torch.zeros(64, 192))

    def forward(self, x):
        return self.net((x @ self.table).view(-1, 3, 8, 8))


class Weighted(nn.Module):
    def __init__(self, in_features: int = 48):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(64, 8))

    def forward(self, x):
        return x @ self.weight
        #      ^^^^^^^^^^^^^^^ warning[dimension]:
        #  `x @ self.weight` only works when x.shape[2] == 64, but in_features is 48.


class Scores(nn.Module):
    def __init__(self, in_features: int = 48, out_features: int = 16):
        super().__init__()
        self.fc, self.key = nn.Linear(in_features, out_features), nn.Parameter(torch.zeros(out_features, 1))

    def scores(self, hidden):
        return torch.matmul(hidden, self.key)

    def forward(self, x):
        return self.scores(self.fc(x))


class Dilated(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.last = nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(4, 4, 3, dilation=4000)

    def forward(self, image):
        if type(image.shape[-1]) is not int:
            raise TypeError("no symbols")
        if image.shape[-1] > 4096:
            raise ValueError("too large")
        return self.last(self.scale(image))
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^ information[inputs]:
        #  Calculated padded input size per channel: (32 x 32). Kernel size: (8001 x 8001). Kernel size can't be
        #  greater than actual input size (input: f32[4, 4, 32, 32], weight: f32[4, 4, 3, 3], bias: f32[4]). The
        #  inputs are guessed; write the real ones in a comment: `# fx: image=f32[4, 3, 64, 64]`.
