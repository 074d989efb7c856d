# crash: a filter bank is made for half of the Fourier window, which gives one frequency more
# evidence: none
import torch
import torch.nn as nn


class MelFrontEnd(nn.Module):
    def __init__(self, n_fft=400, hop_length=160, n_mels=80, d_model=128):
        super().__init__()
        self.n_fft = n_fft
        self.hop_length = hop_length
        self.to_mel = nn.Linear(n_fft // 2 + 1, n_mels, bias=False)  # mistake: self.to_mel = nn.Linear(n_fft // 2, n_mels, bias=False)
        self.conv = nn.Conv1d(n_mels, d_model, kernel_size=3, padding=1)

    def forward(self, audio):
        window = torch.hann_window(self.n_fft, device=audio.device)
        spec = torch.stft(audio, self.n_fft, self.hop_length, window=window, return_complex=True)
        power = spec.abs().pow(2).transpose(1, 2)
        mel = torch.log(self.to_mel(power).clamp(min=1e-6))
        return self.conv(mel.transpose(1, 2))


# run:
MelFrontEnd()(torch.randn(2, 16000)).sum().backward()
