# What a program does on its way to a target: command lines, workers, registries, data that is absent, files.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === Dictionaries in lists
def loss(outputs, targets):
    labels = torch.cat([t["labels"] for t in targets])
    boxes = torch.cat([t["boxes"] for t in targets])
    predicted = outputs["boxes"].flatten(0, 1)
    return F.l1_loss(predicted[: len(boxes)], boxes) * labels.float().mean()
#: loss(outputs['boxes']=f32[4, 64] · search; targets[0]['boxes']=f32[8, 16] · search: sizes that fit;
#:   targets[0]['labels']=i64[12] · search; targets[1]['boxes']=f32[8, 16] · search: sizes that fit;
#:   targets[1]['labels']=i64[12] · search) -> f32[]

# === Objects with tensors in them
from typing import Optional

class Nested:
    def __init__(self, tensors, mask: Optional[Tensor]):
        self.tensors, self.mask = tensors, mask

class Masked(nn.Module):
    def forward(self, nested: Nested):
        return nested.tensors * ~nested.mask
#: Masked [forward](nested.tensors=f32[4, 8, 64] · search; nested.mask=b8[4, 1, 64] · search: sizes that fit) -> f32[4,
#:   8, 64]
#:   forward:
#:     nested_tensors: f32[4, 8, 64] = placeholder
#:     nested_mask: b8[4, 1, 64] = placeholder
#:     bitwise_not: b8[4, 1, 64] = aten.bitwise_not.default(nested_mask)
#:     mul: f32[4, 8, 64] = aten.mul.Tensor(nested_tensors, bitwise_not)
#:     return (mul, nested_mask)

# === An object without a class
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)

    def forward(self, batch):
        return self.embed(batch.tokens) * batch.weights.unsqueeze(-1)
#: Encoder(batch.tokens=i64[4, 8] · search; batch.weights=f32[4, 8] · search: sizes that fit) -> f32[4, 8, 16]

# === A parameter that is used as an array is one
import numpy as np

class Table:
    def __init__(self, weights):
        self.weights = np.array(weights, dtype=np.float64)
        assert len(self.weights.shape) == 1 and (self.weights > 0).all()

    def weighted(self, losses, t):
        return losses * torch.from_numpy(self.weights)[t]
#: Table.weighted(init.weights=np.linspace(0.01, 0.99, 64) · search: used as an array; losses=f32[4, 64], t=0 · search)
#:   -> f32[4, 64]

# === A loop over absent data has a turn
def loss(x, scale, extra):
    return (torch.relu(x) * scale + extra["y"] + extra["z"]).mean()
# --- train.py
import torch
from user import loss
from nowhere import Loader

def main(path):
    scale = torch.randn(24)
    for epoch in range(3):
        for number, (x, y) in enumerate(Loader(path)):
            x = x.cuda()
            if number > 100:
                break
            loss(x, scale, extra=dict(y=y, z=torch.ones(24)))

if __name__ == "__main__":
    main("rows.csv")
#: loss(x=f32[4, 24] · search: sizes that fit; scale=f32[24] · call site `loss(x, scale, extra=dict(y=y,
#:   z=torch.ones(24)))`; extra['y']=f32[4, 24] · search: sizes that fit; extra['z']=f32[24] · call site `loss(x, scale,
#:   extra=dict(y=y, z=torch.ones(24)))`) -> f32[]

# === A loop runs on while it fills what a batch is sampled from
def q_loss(net, states, rewards):
    return F.mse_loss(net(states).amax(-1), rewards)
# --- train.py
import random
import torch
from torch import nn
from user import q_loss

memory, net, state = [], nn.Linear(4, 2), torch.zeros(4)
for _ in range(10_000):
    action = net(state).argmax()
    state = torch.rand(4)
    memory.append((state, action.float()))
for _ in range(100):
    states, rewards = zip(*random.sample(memory, 32))
    q_loss(net, torch.stack(states), torch.stack(rewards)).backward()
#: q_loss(net=Linear(in_features=4, out_features=2, bias=True), states=f32[32, 4], rewards=f32[32] · call site
#:   `q_loss(net, torch.stack(states), torch.stack(rewards)).backward()`) -> f32[]
