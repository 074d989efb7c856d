# crash: the model gives logits and loss, and backward is called on both together
# evidence: call
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Tagger(nn.Module):
    def __init__(self, vocabulary=200, width=32, tags=7):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.out = nn.Linear(width, tags)

    def forward(self, tokens, tags=None):
        logits = self.out(self.embed(tokens))
        if tags is None:
            return logits
        return logits, F.cross_entropy(logits.transpose(1, 2), tags)


def train(epochs=1):
    data = TensorDataset(torch.randint(0, 200, (64, 12)), torch.randint(0, 7, (64, 12)))
    loader = DataLoader(data, batch_size=16)
    model = Tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(epochs):
        for tokens, tags in loader:
            optimizer.zero_grad()
            _, loss = model(tokens, tags)  # mistake: loss = model(tokens, tags)
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    train()
