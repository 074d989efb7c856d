# targets: Block, Heat, residual, residual_of_one_order, step
import torch
import torch.nn as nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, x):
        return torch.tanh(self.inner(x))


class Heat(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.first = nn.Linear(2, width)
        self.block = Block(width)
        self.last = nn.Linear(width, 1)

    def forward(self, x, t):
        return self.last(self.block(self.first(torch.cat([x, t], -1))))


def residual(net, x, t):
    u = net(x, t)
    ones = torch.ones_like(u)
    u_x = torch.autograd.grad(u, x, ones, create_graph=True)[0]
    return torch.autograd.grad(u_x, x, ones, create_graph=True)[0] - torch.autograd.grad(u, t, ones, create_graph=True)[0]


def residual_of_one_order(net, x, t):
    u = net(x, t)
    ones = torch.ones_like(u)
    u_x = torch.autograd.grad(u, x, ones, retain_graph=True)[0]
    return torch.autograd.grad(u_x, x, ones, create_graph=True)[0]
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[error]:
    #  element 0 of tensors does not require grad and does not have a grad_fn ((f32[4, 1](2, 1),), (f32[4, 1],),
    #  f32[4, 1]). The inputs are guessed; write the real ones in a comment: `# fx: net=…, x=f32[4, 1], t=f32[4, 1]`.


def step(net: nn.Module, optimizer, x, t):
    net.train()
    loss = net(x, t).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
