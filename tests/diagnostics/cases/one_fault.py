# targets: Head, Net, Wrong, train.step, evaluate, evaluate.step
import torch
import torch.nn as nn
import torch.nn.functional as F


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout2d(0.5)
        self.out = nn.Linear(4, 4)

    def forward(self, x):
        return self.out(self.drop(x))
        #               ^^^^^^^^^^^^ warning[pytorch-warning]:
        #  PyTorch warns: dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout
        #  behavior is desired - input is interpreted as shape (N, C, L), where C is the channel dim. This behavior
        #  will change in a future release to interpret the input as one without a batch dimension, i.e. shape (C, H,
        #  W). To maintain the 1D channel-wise dropout behavior, please switch to using dropout1d instead.
        #  line 16: also reached from Net
        #  line 38: also reached from train.step
        #  line 45: also reached from evaluate
        #  line 48: also reached from evaluate.step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 4)
        self.head = Head()

    def forward(self, x):
        return self.head(self.body(x))


class Wrong(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()
        self.last = nn.Linear(5, 2)

    def forward(self, x):
        return self.last(self.net(x))
        #      ^^^^^^^^^^^^^^^^^^^^^^ error[shape]:
        #  matrices of 6×4 and 5×2 cannot be multiplied: the inner sizes 4 and 5 differ (input: f32[2, 3, 4], weight:
        #  f32[2, 5], bias: f32[2]).
        #  line 53: also reached from __main__


def train(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def evaluate(model, batches):
    total = 0.0
    with torch.no_grad():
        for x, y in batches:
            total += F.mse_loss(model(x), y).item()
            #        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ information[dimension]:
            #  the value of `F.mse_loss(model(x), y).item()` is assumed: a trace has shapes but no values.
    return total


if __name__ == "__main__":
    data = [(torch.randn(2, 3, 8), torch.randn(2, 3, 4)) for _ in range(3)]
    net = Net()
    train(net, data)
    evaluate(net, data)
    Wrong()(data[0][0])
