# crash: torch.stft returns complex numbers, and a convolution wants their magnitude
# evidence: call
import torch
import torch.nn as nn
import torch.nn.functional as F


class SpectralDiscriminator(nn.Module):
    """One of several discriminators on spectrograms of another resolution."""

    def __init__(self, n_fft=512, hop=128, width=16):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("window", torch.hann_window(n_fft))
        self.convs = nn.ModuleList(
            [
                nn.Conv2d(1, width, (9, 3), padding=(4, 1)),
                nn.Conv2d(width, width, (9, 3), stride=(2, 1), padding=(4, 1)),
                nn.Conv2d(width, width, 3, padding=1),
            ]
        )
        self.post = nn.Conv2d(width, 1, 3, padding=1)

    def spectrogram(self, y):
        spec = torch.stft(y, self.n_fft, self.hop, window=self.window, center=True, return_complex=True)
        return spec.abs()  # mistake: return spec

    def forward(self, y):
        x = self.spectrogram(y).unsqueeze(1)
        maps = []
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.1)
            maps.append(x)
        return self.post(x).flatten(1), maps


def main():
    discriminators = nn.ModuleList([SpectralDiscriminator(n, n // 4) for n in (256, 512)])
    audio = torch.randn(2, 4096)
    loss = sum(F.relu(1 - d(audio)[0]).mean() for d in discriminators)
    loss.backward()
    return loss


if __name__ == "__main__":
    print(main())
