# crash: the predictions of all batches are joined along the columns, and the last batch is smaller
# evidence: call
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, n_in=20, hidden=64, n_out=10):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, n_out)

    def forward(self, x):
        return self.head(self.body(x))


@torch.no_grad()
def predict(model, loader):
    outputs = []
    for (x,) in loader:
        outputs.append(model(x).softmax(dim=1))
    return torch.cat(outputs, dim=0)  # mistake: return torch.cat(outputs, dim=1)


if __name__ == "__main__":
    model = Net()
    data = torch.randn(100, 20)
    probabilities = predict(model, DataLoader(TensorDataset(data), batch_size=32))
    print(probabilities.shape)
    print(probabilities.argmax(dim=1)[:10])
