import torch
from torch import nn

# === Modules are made before, factories are operations, and the graph returns what the variables hold
net = nn.Linear(8, 4)
x = torch.randn(2, 8)
y = net(x)
#: __main__ [forward]() -> f32[2, 8], f32[2, 4]
#:   forward:
#:     net_weight: f32[4, 8] = placeholder
#:     net_bias: f32[4] = placeholder
#:     x: f32[2, 8] = aten.randn.default([2, 8], device=torch.device('cpu'), pin_memory=False)
#:     t: f32[8, 4](1, 8) = aten.t.default(net_weight)
#:     y: f32[2, 4] = aten.addmm.default(net_bias, x, t)
#:     return (x, y, x)


# === A product that does not fit
net = nn.Linear(8, 4)
x = torch.randn(2, 9)
y = net(x)
#   ^^^^^^ error[shape]:
#  matrices of 2×9 and 8×4 cannot be multiplied: the inner sizes 9 and 8 differ (input: f32[2, 9], weight: f32[4, 8],
#  bias: f32[4]).
#: __main__()


# === A name that held something else before, on one line, and a loss
n = 3; n = torch.ones(n, requires_grad=True) * 2; loss = n.sum(); loss.backward()
#: __main__ [ops]() -> f32[]
#:   ops: ones, mul, sum


# === Values that are only printed are results, and a long loop has few iterations
w = torch.randn(3)
for step in range(1000):
    w = w * 0.5
    print(f"{step}: {w.sum():.2f}")
print("%.2f" % w.norm(), w.sort().values)
#: __main__ [ops]() -> f32[3], f32[], f32[3]
#:   note: the graph has 2 iterations of the loop at line 5
#:   ops: randn, mul, mul, linalg_vector_norm, sort, getitem


# === Constants, objects and a call of what trains compute nothing here
MEAN = torch.tensor([0.5, 0.4])
LAYERS = {"relu": nn.ReLU(), "wide": nn.Linear(4, 4)}
net = LAYERS["wide"]
for parameter in net.parameters():
    nn.init.normal_(parameter)


def train(net, x):
    net(x).sum().backward()


train(net, torch.ones(2, 4))
#: __main__()
#:   information[nothing]: __main__ runs no PyTorch operation


# === What needs data that are missing is left out
net = nn.Linear(8, 4)
net.load_state_dict(torch.load("weights.pt"))
z = net(torch.ones(3, 8)).softmax(-1)
#: __main__ [ops]() -> f32[3, 4]
#:   note: weights are not loaded: weights.pt
#:   ops: ones, t, addmm, _softmax


# === Under the guard of a program
def half(x):
    return x / 2


if __name__ == "__main__":
    x = torch.ones(3, 8)
    y = half(x)
#: __main__() -> f32[3, 8], f32[3, 8]
