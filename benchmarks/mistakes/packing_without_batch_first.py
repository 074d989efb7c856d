# crash: padded sequences are packed as if the length came first, "Expected `len(lengths)` to be equal to batch_size"
# evidence: call
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader


class VariableLengthEncoder(nn.Module):
    def __init__(self, n_features=13, hidden=32, n_classes=5):
        super().__init__()
        self.rnn = nn.GRU(n_features, hidden, batch_first=True)
        self.fc = nn.Linear(hidden, n_classes)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(
            x,
            lengths,
            batch_first=True,  # mistake: batch_first=False,
            enforce_sorted=False,
        )
        _, h = self.rnn(packed)
        return self.fc(h[-1])


def collate_fn(batch):
    features, labels = zip(*batch, strict=True)
    lengths = torch.tensor([len(f) for f in features])
    return pad_sequence(features, batch_first=True), lengths, torch.tensor(labels)


def fake_utterances(n=40):
    g = torch.Generator().manual_seed(3)
    for _ in range(n):
        frames = int(torch.randint(20, 60, (1,), generator=g))
        yield torch.randn(frames, 13, generator=g), int(torch.randint(0, 5, (1,), generator=g))


if __name__ == "__main__":
    loader = DataLoader(list(fake_utterances()), batch_size=8, collate_fn=collate_fn)
    model = VariableLengthEncoder()
    optim = torch.optim.Adam(model.parameters())
    for x, lengths, y in loader:
        loss = nn.functional.cross_entropy(model(x, lengths), y)
        optim.zero_grad()
        loss.backward()
        optim.step()
