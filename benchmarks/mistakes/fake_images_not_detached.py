# crash: generated images go through the discriminator's step undetached, "backward through the graph a second time"
# evidence: call
import torch
import torch.nn as nn


class Generator(nn.Module):
    def __init__(self, nz=16, d=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(nz, d), nn.ReLU(), nn.Linear(d, 2))

    def forward(self, z):
        return self.net(z)


class Discriminator(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, d), nn.LeakyReLU(0.2), nn.Linear(d, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


def train(iterations=3, batch=32, nz=16):
    netG, netD = Generator(nz), Discriminator()
    optG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()
    ones, zeros = torch.ones(batch), torch.zeros(batch)
    for _ in range(iterations):
        real = torch.randn(batch, 2) * 0.5 + 2
        fake = netG(torch.randn(batch, nz))

        optD.zero_grad()
        scores = netD(fake.detach())  # mistake: scores = netD(fake)
        lossD = criterion(netD(real), ones) + criterion(scores, zeros)
        lossD.backward()
        optD.step()

        optG.zero_grad()
        lossG = criterion(netD(fake), ones)
        lossG.backward()
        optG.step()
    return lossD.item(), lossG.item()


if __name__ == "__main__":
    print(train())
