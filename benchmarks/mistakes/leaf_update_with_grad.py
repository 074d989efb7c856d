# crash: weights are updated by hand outside of no_grad, "a leaf Variable ... used in an in-place operation"
# evidence: call
import torch
import torch.nn.functional as F

bs = 64
lr = 0.5
epochs = 2

torch.manual_seed(0)
x_train = torch.rand(512, 784)
y_train = torch.randint(0, 10, (512,))

weights = (torch.randn(784, 10) / 784**0.5).requires_grad_()
bias = torch.zeros(10, requires_grad=True)


def model(xb):
    return xb @ weights + bias


def accuracy(out, yb):
    return (out.argmax(dim=1) == yb).float().mean()


def fit():
    for _ in range(epochs):
        for i in range((len(x_train) - 1) // bs + 1):
            xb = x_train[i * bs : (i + 1) * bs]
            yb = y_train[i * bs : (i + 1) * bs]
            loss = F.cross_entropy(model(xb), yb)
            loss.backward()
            with torch.no_grad():  # mistake: if True:
                weights.sub_(weights.grad * lr)
                bias.sub_(bias.grad * lr)
                weights.grad.zero_()
                bias.grad.zero_()
    return loss.item()


if __name__ == "__main__":
    fit()
    print(accuracy(model(x_train), y_train))
