# targets: Multiply, product, Crash, crash, Right, right, Straight, Layer, Constant, constant, several, Doubled,
#  differentiated_before
import torch


class Multiply(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return grad @ w.t(), grad.t() @ x
        #                    ^^^^^^^^^^^^ error[wrong-gradient]:
        #  `Multiply.backward` returns f32[5, 12] as the gradient of `w`, which has the shape [12, 5].
        #  line 16: traced product
        #  line 4: also reached from Multiply


def product(x, w):  # fx: x=f32[8, 12], w=f32[12, 5]
    return Multiply.apply(x, w)


class Crash(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return grad @ w, x.t() @ grad
        #      ^^^^^^^^ error[wrong-gradient]:
        #  `Crash.backward` raises: matrices of 8×5 and 12×5 cannot be multiplied: the inner sizes 5 and 12 differ.
        #  line 32: traced crash
        #  line 20: also reached from Crash


def crash(x, w):  # fx: x=f32[8, 12], w=f32[12, 5]
    return Crash.apply(x, w)


class Right(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, b):
        return x + b

    @staticmethod
    def backward(ctx, grad):
        return grad, grad


def right(x, b):  # fx: x=f32[8, 12], b=f32[12]
    return Right.apply(x, b)


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(x, scale):
        return (x > 0).float() * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.scale = inputs

    @staticmethod
    def backward(ctx, grad):
        return grad.sum(0) * ctx.scale, None
        #      ^^^^^^^^^^^^^^^^^^^^^^^ error[wrong-gradient]:
        #  `Straight.backward` returns f32[4] as the gradient of `x`, which has the shape [3, 4].
        #  line 64: traced Layer
        #  line 50: also reached from Straight


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(6, 4)

    def forward(self, x):
        return Straight.apply(self.inner(x), 2.0).sum()


class Constant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, grad):
        if not ctx.needs_input_grad[0]:
            return None
        return 1.0
        #      ^^^ error[wrong-gradient]:
        #  `Constant.backward` returns a float as the gradient of `x`, which has the shape [4, 64].
        #  line 85: also reached from constant


def constant(x):  # fx: x=f32[8]
    return Constant.apply(x)


class Several(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, ids, *weights):
        ctx.save_for_backward(x, *weights)
        return sum(x @ weight for weight in weights)

    @staticmethod
    def backward(ctx, grad):
        x, *weights = ctx.saved_tensors
        return sum(grad @ weight.t() for weight in weights), None, *(x.t() @ grad for _ in weights)


def several(x, v, w):  # fx: x=f32[8, 12], v=f32[12, 5], w=f32[12, 5]
    return Several.apply(x, torch.arange(3), v, w)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        #      ^^^^^^^^^^^^^^^^^ information[unsupported]:
        #  it runs, but AOTAutograd cannot capture it: Trying to backward through the graph a second time (or directly
        #  access saved tensors after they have already been freed). Saved intermediate values of the graph are freed
        #  when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the
        #  graph a second time or if you need to access saved tensors after calling backward.
        #  line 118: traced differentiated_before
        return 2 * x * gradient


# fx: x=f32[4]
def differentiated_before(x):
    y = Doubled.apply(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    return y, gradient


if __name__ == "__main__":
    Layer()(torch.randn(3, 6)).backward()
