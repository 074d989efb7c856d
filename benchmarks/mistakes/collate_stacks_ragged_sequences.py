# crash: sequences of different lengths are stacked by a collate function, "stack expects each tensor to be equal size"
# evidence: call
import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

VOCAB = "abcdefghijklmnopqrstuvwxyz"


class Names(Dataset):
    def __init__(self, size=64):
        rng = random.Random(0)
        self.items = ["".join(rng.choices(VOCAB, k=rng.randint(3, 12))) for _ in range(size)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        name = self.items[index]
        ids = torch.tensor([VOCAB.index(c) + 1 for c in name])
        return ids, len(name) % 2


def collate(batch):
    ids, labels = zip(*batch, strict=True)
    padded = pad_sequence(ids, batch_first=True)  # mistake: padded = torch.stack(ids)
    return padded, torch.tensor(labels)


class BagOfChars(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(len(VOCAB) + 1, dim, padding_idx=0)
        self.fc = nn.Linear(dim, 2)

    def forward(self, ids):
        return self.fc(self.embed(ids).sum(dim=1))


def main():
    loader = DataLoader(Names(), batch_size=16, shuffle=True, collate_fn=collate)
    model = BagOfChars()
    optimizer = torch.optim.Adam(model.parameters())
    for ids, labels in loader:
        loss = nn.functional.cross_entropy(model(ids), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
