# crash: a layer behind statistics pooling counts the means and not the deviations
# evidence: none
import torch
import torch.nn as nn


class SpeakerEncoder(nn.Module):
    def __init__(self, n_mels=40, channels=64, embedding=32):
        super().__init__()
        self.frames = nn.Sequential(
            nn.Conv1d(n_mels, channels, 5, padding=2),
            nn.ReLU(),
            nn.BatchNorm1d(channels),
            nn.Conv1d(channels, channels, 3, padding=2, dilation=2),
            nn.ReLU(),
        )
        self.norm = nn.BatchNorm1d(2 * channels)  # mistake: self.norm = nn.BatchNorm1d(channels)
        self.fc = nn.Linear(2 * channels, embedding)

    def forward(self, mel):
        x = self.frames(mel)
        stats = torch.cat([x.mean(dim=2), x.std(dim=2)], dim=1)
        return self.fc(self.norm(stats))


# run:
SpeakerEncoder()(torch.randn(4, 40, 50)).sum().backward()
