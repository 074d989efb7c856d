# shows: hovers
# What torch.compile captures before and after a break.
import torch


# fx: x=f32[3, 4]
@torch.compile
def step(x):
    y = x.relu()
    print("half of it")
    #^ hover
    #  torch.compile: graph 1 (line 9, 1 op) | **this runs in Python** | graph 2 (lines 11–12, 2 ops)
    y = y * 2
    return y + 1
    #        ^ hover
    #  f32[3, 4]
    #  forward 96 B read and written
    #  forward · 1 op
    #  aten.add.Tensor(y_1, 1) -> f32[3, 4]
