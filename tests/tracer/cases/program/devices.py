# Code for a GPU, where there is none.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === A model that is moved wants its inputs there
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
    def forward(self, x):
        return self.fc(x) + torch.arange(8)
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^ error[device]:
        #  operands are on different devices, cuda:0 and cpu (self.fc(x): f32[4, 8]@cuda, torch.arange(8): i64[8]).

def main():
    model = Net().to("cuda")
    model(torch.randn(4, 8, device="cuda"))
#: Net(x=f32[4, 8]@cuda · call site `model(torch.randn(4, 8, device="cuda"))`)

# === A model that is moved wants its inputs there, 2
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
    def forward(self, x):
        return self.fc(x) + torch.arange(8, device=x.device)

def main():
    model = Net().to("cuda")
    model(torch.randn(4, 8, device="cuda"))
#: Net(x=f32[4, 8]@cuda · call site `model(torch.randn(4, 8, device="cuda"))`) -> f32[4, 8]@cuda
#:   note: there is no cuda device here: where PyTorch selects operations by device (batch norm, recurrent layers,
#:     attention with a mask), the device-independent ones are shown

# === Guessed inputs are where the parameters are
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8, device="cuda")
    def forward(self, x):
        return self.fc(x)
#: Net(x=f32[4, 12, 8]@cuda · search) -> f32[4, 12, 8]@cuda
#:   note: there is no cuda device here: where PyTorch selects operations by device (batch norm, recurrent layers,
#:     attention with a mask), the device-independent ones are shown

# === A module goes where its code says that tensors are
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        order = torch.arange(x.size(1), device=torch.device("cuda"))
        return self.fc(x + order)
#: Net(x=f32[4, 8, 8]@cuda · search: sizes that fit) -> f32[4, 8, 8]@cuda
#:   note: there is no cuda device here: where PyTorch selects operations by device (batch norm, recurrent layers,
#:     attention with a mask), the device-independent ones are shown

# === Without a gpu code that asks for one stands on the cpu
device = "cuda" if torch.cuda.is_available() else "cpu"

# fx: n=4
def f(n):
    return torch.ones(n, device=device) * 2
#: f() -> f32[4]

# === A program that asks which accelerator there is has one
device = torch.accelerator.current_accelerator()
model = nn.Linear(8, 2).to(device.type)
for x in [torch.randn(4, 8)]:
    model(x.to(device)).sum().backward()
#: step(x=f32[4, 8] · call site `for x in [torch.randn(4, 8)]:`) -> f32[]@cuda
#:   note: there is no cuda device here: where PyTorch selects operations by device (batch norm, recurrent layers,
#:     attention with a mask), the device-independent ones are shown
