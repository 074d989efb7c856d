# crash: a sequence is interpolated with a mode for images
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class Upsampler(nn.Module):
    def __init__(self, channels=32, factor=4):
        super().__init__()
        self.factor = factor
        self.conv_in = nn.Conv1d(80, channels, 7, padding=3)
        self.conv_out = nn.Conv1d(channels, 1, 7, padding=3)

    def forward(self, mel):
        x = F.leaky_relu(self.conv_in(mel), 0.1)
        x = F.interpolate(x, scale_factor=self.factor, mode="linear")  # mistake: x = F.interpolate(x, scale_factor=self.factor, mode="bilinear")
        return torch.tanh(self.conv_out(x))


# run:
torch.manual_seed(0)
model = Upsampler()
model(torch.randn(2, 80, 30)).sum().backward()
