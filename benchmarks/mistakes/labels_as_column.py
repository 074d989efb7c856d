# crash: labels of shape (N, 1) are given to the cross entropy, "multi-target not supported"
# evidence: call
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(42)

NUM_CLASSES = 4
inputs = torch.randn(300, 20)
labels = torch.randint(0, NUM_CLASSES, (300, 1))
dataset = TensorDataset(inputs, labels)
train_set, val_set = random_split(dataset, [240, 60])
train_loader = DataLoader(train_set, batch_size=40, shuffle=True)
val_loader = DataLoader(val_set, batch_size=60)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(20, 64)
        self.bn = nn.BatchNorm1d(64)
        self.fc2 = nn.Linear(64, NUM_CLASSES)

    def forward(self, x):
        return self.fc2(torch.relu(self.bn(self.fc1(x))))


def train_one_epoch(model, criterion, optimizer):
    model.train()
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y.squeeze(1))  # mistake: loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()


@torch.no_grad()
def evaluate(model):
    model.eval()
    correct = sum((model(x).argmax(1) == y.squeeze(1)).sum().item() for x, y in val_loader)
    return correct / len(val_set)


model = Net()
train_one_epoch(model, nn.CrossEntropyLoss(), optim.Adam(model.parameters()))
accuracy = evaluate(model)
