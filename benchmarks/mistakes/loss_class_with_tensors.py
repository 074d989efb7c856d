# crash: the class of a loss is constructed with logits and labels instead of being called with them
# evidence: none
import torch
import torch.nn as nn


class Classifier(nn.Module):
    def __init__(self, dim=32, num_classes=10):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, num_classes))

    def forward(self, x):
        return self.net(x)

    def loss(self, x, labels):
        logits = self(x)
        loss = nn.CrossEntropyLoss()(logits, labels)  # mistake: loss = nn.CrossEntropyLoss(logits, labels)
        accuracy = (logits.argmax(dim=1) == labels).float().mean()
        return loss, accuracy


# run:
torch.manual_seed(0)
model = Classifier()
loss, accuracy = model.loss(torch.randn(16, 32), torch.randint(0, 10, (16,)))
loss.backward()
