# targets: Net, adversaries.step, student.step, probe.step, warm_up.step, grown.step, never_zeroed.step
import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.body(x).relu())


def adversaries(data):
    maker, critic = nn.Linear(8, 8), nn.Linear(8, 1)
    of_maker, of_critic = (torch.optim.Adam(net.parameters()) for net in (maker, critic))
    for x in data:
        made = maker(torch.randn(4, 8))
        of_critic.zero_grad()
        (critic(made.detach()).mean() - critic(x).mean()).backward()
        of_critic.step()
        of_maker.zero_grad()
        (-critic(made).mean()).backward()
        of_maker.step()


def student(data):
    net, teacher = Net(), Net()
    optimizer = torch.optim.Adam(net.parameters())
    for x in data:
        with torch.no_grad():
            goal = teacher(x)
        F.mse_loss(net(x), goal).backward()
        optimizer.step()
        for parameter in net.parameters():
            parameter.grad = None
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), net.parameters()):
                slow.mul_(0.9).add_(fast, alpha=0.1)


def probe(data):
    net = Net()
    optimizer = torch.optim.SGD(net.head.parameters(), lr=0.1)
    for x in data:
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()


def warm_up(data, epochs=10):
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(epochs):
        for x in data:
            hidden = net.body(x)
            if epoch < 5:
                hidden = hidden.detach()
            optimizer.zero_grad()
            net.head(hidden).sum().backward()
            optimizer.step()


def grown(data):
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net.head = nn.Sequential(net.head, nn.Linear(4, 2))
    optimizer.add_param_group({"params": net.head[1].parameters()})
    for x in data:
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()


def never_zeroed(data):
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())
    for x in data:
        net(x).sum().backward()
        optimizer.step()
       #^^^^^^^^^^^^^^^^ warning[training]:
       #  the gradients contain those of the step before: call `zero_grad()` after each step.
       #  line 84: traced __main__


if __name__ == "__main__":
    batches = [torch.randn(4, 8), torch.randn(4, 8)]
    adversaries(batches)
    student(batches)
    probe(batches)
    warm_up(batches)
    grown(batches)
    never_zeroed(batches)
