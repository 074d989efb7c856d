# crash: the length that is left of one second of audio after the strided convolutions was computed wrongly
# evidence: call
import torch
from torch import nn

SAMPLE_RATE = 16000


class KeywordSpotter(nn.Module):
    """M5-like network on raw waveforms of one second."""

    def __init__(self, n_keywords: int = 35, width: int = 32):
        super().__init__()
        self.conv1 = nn.Conv1d(1, width, kernel_size=80, stride=16)
        self.bn1 = nn.BatchNorm1d(width)
        self.pool1 = nn.MaxPool1d(4)
        self.conv2 = nn.Conv1d(width, width * 2, kernel_size=3)
        self.bn2 = nn.BatchNorm1d(width * 2)
        self.pool2 = nn.MaxPool1d(4)
        self.head = nn.Linear(width * 2 * 61, n_keywords)  # mistake: self.head = nn.Linear(width * 2 * 62, n_keywords)

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        x = self.pool1(torch.relu(self.bn1(self.conv1(wave))))
        x = self.pool2(torch.relu(self.bn2(self.conv2(x))))
        return self.head(x.flatten(start_dim=1))


def test_one_second_of_audio():
    model = KeywordSpotter().eval()
    with torch.no_grad():
        logits = model(torch.randn(8, 1, SAMPLE_RATE))
    assert logits.shape == (8, 35)


# run:
test_one_second_of_audio()
