# crash: the first convolution of a decoder block does not count the channels of the skip connection
# evidence: none
import torch
import torch.nn as nn


class DoubleConv(nn.Module):
    """(convolution => [BN] => ReLU) * 2"""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.double_conv(x)


class UNet(nn.Module):
    def __init__(self, n_channels, n_classes, base=32):
        super().__init__()
        self.inc = DoubleConv(n_channels, base)
        self.down1 = DoubleConv(base, base * 2)
        self.down2 = DoubleConv(base * 2, base * 4)
        self.pool = nn.MaxPool2d(2)
        self.up1 = nn.ConvTranspose2d(base * 4, base * 2, kernel_size=2, stride=2)
        self.dec1 = DoubleConv(base * 4, base * 2)  # mistake: self.dec1 = DoubleConv(base * 2, base * 2)
        self.up2 = nn.ConvTranspose2d(base * 2, base, kernel_size=2, stride=2)
        self.dec2 = DoubleConv(base * 2, base)
        self.outc = nn.Conv2d(base, n_classes, kernel_size=1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(self.pool(x1))
        x3 = self.down2(self.pool(x2))
        y = self.dec1(torch.cat([x2, self.up1(x3)], dim=1))
        y = self.dec2(torch.cat([x1, self.up2(y)], dim=1))
        return self.outc(y)


# run:
UNet(3, 2)(torch.randn(2, 3, 64, 64)).sum().backward()
