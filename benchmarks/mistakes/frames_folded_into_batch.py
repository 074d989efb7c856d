# crash: the frames of a video are folded into the batch, but the view leaves their number out
# evidence: call
import torch
from torch import nn


class FrameEncoder(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 32, 5, stride=4, padding=2),
            nn.ReLU(),
            nn.Conv2d(32, dim, 3, stride=2, padding=1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )

    def forward(self, x):
        return self.net(x)


class VideoClassifier(nn.Module):
    """A CNN for each frame, and a GRU over the frames."""

    def __init__(self, num_classes=12, dim=64):
        super().__init__()
        self.encoder = FrameEncoder(dim)
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.fc = nn.Linear(dim, num_classes)

    def forward(self, video):
        b, t, c, h, w = video.shape
        frames = video.view(b * t, c, h, w)  # mistake: frames = video.view(b, c, h, w)
        feats = self.encoder(frames).view(b, t, -1)
        out, _ = self.gru(feats)
        return self.fc(out[:, -1])


if __name__ == "__main__":
    model = VideoClassifier()
    clip = torch.randn(2, 8, 3, 64, 64)
    logits = model(clip)
    print(logits.shape)
