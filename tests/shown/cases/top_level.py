# shows: lenses, hints
import torch
from torch import nn

# === code of a file that is in no function
net = nn.Linear(8, 4)
#^ lens 8 ops forward · 13 backward · saves 96 B
#^ lens show forward graph
#^ lens show backward graph
#^ lens show joint graph
#^ lens passes
#^ lens why not fused
#^ lens generate Triton kernel
x = torch.randn(2, 8)
#^ hint : f32[2, 8]
#                    ^ hint saves 64 B for backward of net
y = net(x).relu()
#^ hint : f32[2, 4]
#                ^ hint saves 32 B for backward of relu
for row in y:
#      ^ hint : f32[4]
    total = row.sum()
    #    ^ hint : f32[]


# === up to the statement that fails
net = nn.Linear(8, 4)
#^ lens not traced: line 7
#^ lens show partial graph
x = torch.randn(2, 9)
#^ hint : f32[2, 9]
y = net(x)
