# Training and evaluation steps: the body of a loop over batches, with what comes before it, and never the loop.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === What goes from turn to turn is an input
rnn = nn.LSTM(4, 8)
state = torch.zeros(1, 16, 8), torch.zeros(1, 16, 8)
for i in range(0, 100, 5):
    state = [s.detach() for s in state]
    out, state = rnn(torch.randn(5, 16, 4), state)
    out.mean().backward()
#: step(state[0]=f32[1, 16, 8], state[1]=f32[1, 16, 8] · call site `for i in range(0, 100, 5):`) -> f32[]
#:   note: recurrent layers are shown as the single operation that cuDNN runs (its reserve space is not counted as
#:     saved); without cuDNN, PyTorch loops over the steps

# === The loop of another file is reached by its caller
def train_one_epoch(model, loader, optimizer, log=None):
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        loss.backward()
# --- main.py
import torch
from missing_package import Logger
from user import train_one_epoch

def main(width=12):
    loader = [(torch.randn(6, width), torch.randn(6, 1))]
    train_one_epoch(torch.nn.Linear(width, 1), loader, None, log=Logger())

if __name__ == "__main__":
    main()
#: train_one_epoch.step(x=f32[6, 12], y=f32[6, 1] · call site `for x, y in loader:`) -> f32[]

# === A function that trains on what the file reads
import argparse
import numpy as np
from torch.utils.data import DataLoader, Dataset, TensorDataset

class Net(nn.Module):
    def __init__(self, width, classes=4):
        super().__init__()
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        return self.fc(x)

parser = argparse.ArgumentParser()
parser.add_argument("--hidden", type=int, default=16)
args = parser.parse_args()
args.cuda = torch.cuda.is_available()
rows, labels, chosen = torch.load("/nowhere/rows.pt")
model = Net(rows.shape[1], classes=labels.max().item() + 1)

def train(epoch):
    loss = F.cross_entropy(model(rows)[chosen], labels[chosen])
    loss.backward()
    print(epoch, loss.item())

for epoch in range(10):
    train(epoch)
#: train(epoch=0 · call site `train(epoch)`; rows=f32[4, 64] · search; chosen=i64[32], labels=i64[1001] · search: rank
#:   that the operation accepts) -> f32[]
#:   note: weights are not loaded: /nowhere/rows.pt
#:   note: the data is missing; assumed: rows_size=64, classes=1000

# === A batch that is spread over the arguments of a model
class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x, adjacency):
        return adjacency @ self.fc(x)

def train_step(model, criterion, batch, target):
    loss = criterion(model(*batch), target)
    loss.backward()

if __name__ == "__main__":
    batch, target = torch.load("/nowhere/batch.pt")
    train_step(Graph(), nn.CrossEntropyLoss(), batch, target)
#: train_step(model=Graph(…), criterion=CrossEntropyLoss() · call site `train_step(Graph(), nn.CrossEntropyLoss(),
#:   batch, target)`; batch[0]=f32[4, 8], batch[1]=f32[12, 4], target=i64[12] · search: sizes that fit) -> f32[]
#:   note: weights are not loaded: /nowhere/batch.pt
