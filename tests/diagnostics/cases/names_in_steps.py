# targets: step, by_key.step, backward_of.step, Trainer.fit.step, Trainer.loss, Trainer.wrong.step
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

batches = [torch.randn(8, 4) for _ in range(3)]
step = nn.Linear(4, 1)
step_2 = torch.compile(step)
optimizer = torch.optim.SGD(step.parameters(), lr=0.1)

for batch in batches:
    loss = step_2(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


class Samples(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return {"x": torch.randn(3), "loss": torch.rand(()), "self": torch.randn(3), "class": 1}


def by_key(loss):
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch_x = loss
    for batch in DataLoader(Samples(), batch_size=2):
        output = model(batch["x"] + batch["self"])
        total = batch_x(output, batch["class"], reduction="none") * batch["loss"]
        optimizer.zero_grad()
        total.mean().backward()
        optimizer.step()


def backward_of(net, backward):
    for step in batches:
        total = net(step).mean()
        backward(total)
        total.backward()


class Trainer:
    def __init__(self):
        self.step = nn.Linear(4, 4)

    def fit(self, data):
        step = self.step
        optimizer = torch.optim.SGD(step.parameters(), lr=0.1)
        for function in data:
            loss = self.loss(step, function)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def loss(self, step, batch):
        return (step(batch) - batch).pow(2).mean()

    def wrong(self, data):
        step = self.step
        for batch in data:
            loss = step(batch.t() @ batch) @ step(batch)
            #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ error[shape]:
            #  matrices of 4×4 and 8×4 cannot be multiplied: the inner sizes 4 and 8 differ (step(batch.t() @ batch):
            #  f32[4, 4], step(batch): f32[8, 4]).
            #  line 6: also reached from __main__
            loss.sum().backward()


if __name__ == "__main__":
    by_key(F.cross_entropy)
    backward_of(step, print)
    Trainer().fit(batches)
    Trainer().wrong(batches)
