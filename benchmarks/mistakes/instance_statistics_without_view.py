# crash: the mean and the deviation of feature maps meet them without two dimensions for the image
# evidence: none
import torch
import torch.nn as nn


def mean_and_std(feat, eps=1e-5):
    N, C = feat.shape[:2]
    flat = feat.view(N, C, -1)
    std = (flat.var(dim=2) + eps).sqrt().view(N, C, 1, 1)  # mistake: std = (flat.var(dim=2) + eps).sqrt()
    mean = flat.mean(dim=2).view(N, C, 1, 1)  # mistake: mean = flat.mean(dim=2)
    return mean, std


def adaptive_instance_normalization(content, style):
    style_mean, style_std = mean_and_std(style)
    content_mean, content_std = mean_and_std(content)
    return (content - content_mean) / content_std * style_std + style_mean


class Decoder(nn.Module):
    def __init__(self, channels=32):
        super().__init__()
        self.conv = nn.Conv2d(channels, 3, 3, padding=1)

    def forward(self, content, style):
        return self.conv(adaptive_instance_normalization(content, style))


# run:
Decoder()(torch.randn(2, 32, 16, 16), torch.randn(2, 32, 20, 20)).sum().backward()
