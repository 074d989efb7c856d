# targets: LM, wrong, train_epoch.step
# %%
%load_ext autoreload
%autoreload 2
!pip install torch --quiet
import torch
import torch.nn as nn

# %%
files = !ls
remainder = (7
% 4)


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 8)

    def forward(self, x):
        if x.ndim > 3:
            %time print(x)
        text = """
!not a command
%neither
"""
        return self.up(x) @ self.up.weight


# %%
%%time
LM()(torch.randn(3, 4))


def wrong(x: torch.Tensor):
    y = LM()(x)
    !echo "(
    return y @ torch.ones(5, 5)
    #      ^^^^^^^^^^^^^^^^^^^^ error[shape]:
    #  matrices of 8×4 and 5×5 cannot be multiplied: the inner sizes 4 and 5 differ (y: f32[8, 4], torch.ones(5, 5):
    #  f32[5, 5]).


def train_epoch(batches):
    net = LM()
    for x in batches:
        (net.up(x).sum()).backward()


# %%
train_epoch([torch.randn(2, 4)])
