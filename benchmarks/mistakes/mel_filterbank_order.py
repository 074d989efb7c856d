# crash: the mel filterbank is multiplied to the spectrogram from the wrong side
# evidence: none
import math

import torch
from torch import nn


def hz_to_mel(f):
    return 2595.0 * math.log10(1.0 + f / 700.0)


def melscale_fbanks(n_freqs, n_mels, sample_rate):
    freqs = torch.linspace(0, sample_rate // 2, n_freqs)
    mels = torch.linspace(hz_to_mel(20.0), hz_to_mel(sample_rate / 2), n_mels + 2)
    points = 700.0 * (10.0 ** (mels / 2595.0) - 1.0)
    diff = points[1:] - points[:-1]
    slopes = points.unsqueeze(0) - freqs.unsqueeze(1)
    down = -slopes[:, :-2] / diff[:-1]
    up = slopes[:, 2:] / diff[1:]
    return torch.minimum(down, up).clamp(min=0.0)  # (n_freqs, n_mels)


class MelSpectrogram(nn.Module):
    def __init__(self, sample_rate=16000, n_fft=400, hop_length=160, n_mels=80):
        super().__init__()
        self.n_fft, self.hop_length = n_fft, hop_length
        self.register_buffer("window", torch.hann_window(n_fft))
        self.register_buffer("fb", melscale_fbanks(n_fft // 2 + 1, n_mels, sample_rate))

    def forward(self, wave):
        # wave: (batch, samples)
        spec = torch.stft(wave, self.n_fft, self.hop_length, window=self.window, return_complex=True)
        power = spec.abs().pow(2.0)  # (batch, n_freqs, frames)
        mel = torch.matmul(power.transpose(-1, -2), self.fb)  # mistake: mel = torch.matmul(power, self.fb)
        return torch.log(mel.clamp(min=1e-5)).transpose(-1, -2)


# run:
assert MelSpectrogram()(torch.randn(3, 16000)).shape == (3, 80, 101)
