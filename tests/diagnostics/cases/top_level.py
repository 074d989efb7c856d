# targets:
import torch
from torch import nn

net = nn.Linear(8, 4)
x = torch.randn(2, 8)
with torch.no_grad():
    print(net(x).argmax(-1))
y = net(x) @ torch.randn(3, 4)
#   ^^^^^^^^^^^^^^^^^^^^^^^^^^ error[shape]:
#  matrices of 2×4 and 3×4 cannot be multiplied: the inner sizes 4 and 3 differ (net(x): f32[2, 4], torch.randn(3, 4):
#  f32[3, 4]).
z = y + 1
