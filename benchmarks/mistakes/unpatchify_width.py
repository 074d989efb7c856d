# crash: the last layer of a diffusion transformer gives one row of each patch
# evidence: none
import torch
import torch.nn as nn


class PatchDenoiser(nn.Module):
    def __init__(self, image_size=32, patch_size=4, channels=3, dim=64):
        super().__init__()
        self.patch_size, self.channels = patch_size, channels
        self.embed = nn.Conv2d(channels, dim, patch_size, stride=patch_size)
        self.pos = nn.Parameter(torch.zeros(1, (image_size // patch_size) ** 2, dim))
        self.block = nn.TransformerEncoderLayer(dim, 4, 128, batch_first=True)
        self.final = nn.Linear(dim, patch_size * patch_size * channels)  # mistake: self.final = nn.Linear(dim, patch_size * channels)

    def unpatchify(self, x):
        p, c = self.patch_size, self.channels
        h = w = int(x.shape[1] ** 0.5)
        x = x.reshape(x.shape[0], h, w, p, p, c)
        return torch.einsum("nhwpqc->nchpwq", x).reshape(x.shape[0], c, h * p, w * p)

    def forward(self, img):
        x = self.embed(img).flatten(2).transpose(1, 2) + self.pos
        return self.unpatchify(self.final(self.block(x)))


# run:
PatchDenoiser()(torch.randn(2, 3, 32, 32)).sum().backward()
