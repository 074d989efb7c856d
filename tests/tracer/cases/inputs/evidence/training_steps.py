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

# === What leaves the loop is no part of its step, what leaves a loop inside of it is
@torch.no_grad()
def evaluate(model, loader, dry_run=False):
    correct = 0
    for x, y in loader:
        if x is None:
            continue
        loss = F.mse_loss(model(x), y)
        for _ in range(3):
            loss = loss + 1
            break
        correct += loss.item()
        if dry_run:
            break
    print(correct)

evaluate(nn.Linear(4, 2), [(torch.randn(6, 4), torch.randn(6, 2))] * 3)
#: evaluate.step(x=f32[6, 4], y=f32[6, 2] · call site `for x, y in loader:`) -> f32[]
