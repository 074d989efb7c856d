# crash: a waveform that still has its channel is given to the short-time Fourier transform
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class SpectralLoss(nn.Module):
    """Distance of the magnitudes of two spectrograms."""

    def __init__(self, n_fft=256, hop=64):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.smooth = nn.Conv1d(1, 1, 5, padding=2, bias=False)
        self.register_buffer("window", torch.hann_window(n_fft))

    def magnitude(self, wave):
        wave = self.smooth(wave)
        wave = wave.squeeze(1)  # mistake: wave = wave.contiguous()
        spec = torch.stft(wave, self.n_fft, self.hop, window=self.window, return_complex=True)
        return spec.abs().clamp(min=1e-5)

    def forward(self, fake, real):
        a, b = self.magnitude(fake), self.magnitude(real)
        return F.l1_loss(a.log(), b.log()) + F.mse_loss(a, b)


# run:
SpectralLoss()(torch.randn(2, 1, 4000, requires_grad=True), torch.randn(2, 1, 4000)).backward()
