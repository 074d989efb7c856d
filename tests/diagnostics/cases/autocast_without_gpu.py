# targets: train.step, wrong.step
import torch
import torch.nn as nn


def train(net, batches):
    net = net.to("cuda")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in batches:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = net(x.to("cuda")).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def wrong(net, batches):
    net = net.to("cuda")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in batches:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = net(x.to("cuda").flatten()).mean()
            #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^ error[shape]:
            #  matrices of 1×32 and 4×1 cannot be multiplied: the inner sizes 32 and 4 differ (input: f32[32]@cuda,
            #  weight: f32[1, 4]@cuda, bias: f32[1]@cuda).
            #  line 29: also reached from __main__
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    train(nn.Linear(4, 1), [torch.randn(8, 4) for _ in range(2)])
    wrong(nn.Linear(4, 1), [torch.randn(8, 4) for _ in range(2)])
