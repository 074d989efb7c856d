# crash: a recurrent layer over the features of frames is as wide as the feature maps were before pooling
# evidence: none
import torch
import torch.nn as nn


class VideoClassifier(nn.Module):
    def __init__(self, num_classes=10, hidden=64):
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
        )
        self.rnn = nn.LSTM(32, hidden, batch_first=True)  # mistake: self.rnn = nn.LSTM(32 * 7 * 7, hidden, batch_first=True)
        self.fc = nn.Linear(hidden, num_classes)

    def forward(self, clips):
        b, t, c, h, w = clips.shape
        features = self.cnn(clips.reshape(b * t, c, h, w))
        features = features.view(b, t, -1)
        out, _ = self.rnn(features)
        return self.fc(out[:, -1])


# run:
VideoClassifier()(torch.randn(2, 4, 3, 32, 32)).sum().backward()
