# crash: the smoothed labels are scattered with an index that has no axis for the classes
# evidence: call
import torch
import torch.nn as nn
import torch.nn.functional as F


class LabelSmoothing(nn.Module):
    """Cross entropy with a part of the probability spread over all classes."""

    def __init__(self, classes, smoothing=0.1):
        super().__init__()
        self.classes = classes
        self.smoothing = smoothing
        self.confidence = 1.0 - smoothing

    def forward(self, logits, target):
        logp = F.log_softmax(logits, dim=-1)
        with torch.no_grad():
            true = torch.full_like(logp, self.smoothing / (self.classes - 1))
            true.scatter_(1, target.unsqueeze(1), self.confidence)  # mistake: true.scatter_(1, target, self.confidence)
        return torch.mean(torch.sum(-true * logp, dim=-1))


if __name__ == "__main__":
    model = nn.Linear(20, 10)
    criterion = LabelSmoothing(10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = criterion(model(torch.randn(16, 20)), torch.randint(0, 10, (16,)))
    loss.backward()
    optimizer.step()
