# crash: the decoder concatenates a skip connection of twice the size because the upsampling step was left out
# evidence: call
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Blobs(Dataset):
    """Random squares to be segmented."""

    def __init__(self, n=16, size=64):
        self.n, self.size = n, size

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        mask = torch.zeros(1, self.size, self.size)
        mask[:, i : i + 20, i : i + 20] = 1.0
        return mask + 0.3 * torch.randn_like(mask), mask


def block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.GroupNorm(8, cout), nn.SiLU())


class MiniUNet(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.enc1, self.enc2, self.mid = block(1, c), block(c, 2 * c), block(2 * c, 4 * c)
        self.dec2, self.dec1 = block(4 * c + 2 * c, 2 * c), block(2 * c + c, c)
        self.head = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        e1 = self.enc1(x)
        e2 = self.enc2(F.max_pool2d(e1, 2))
        m = self.mid(F.max_pool2d(e2, 2))
        u2 = F.interpolate(m, scale_factor=2, mode="nearest")
        d2 = self.dec2(torch.cat([u2, e2], 1))
        u1 = F.interpolate(d2, scale_factor=2, mode="nearest")  # mistake: u1 = d2
        d1 = self.dec1(torch.cat([u1, e1], 1))
        return self.head(d1)


def train():
    net = MiniUNet()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for x, y in DataLoader(Blobs(), batch_size=8, shuffle=True):
        loss = F.binary_cross_entropy_with_logits(net(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
    return loss.item()


if __name__ == "__main__":
    train()
