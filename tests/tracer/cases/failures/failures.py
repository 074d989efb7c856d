# What goes wrong stands on the expression that caused it, in a sentence.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === A shape error shows both operands
def f(x: Tensor):
    w = torch.zeros(16, 32)
    y = x @ w
    return y @ w
    #      ^^^^^ error[shape]:
    #  matrices of 4×32 and 16×32 cannot be multiplied: the inner sizes 32 and 16 differ (y: f32[4, 32], w: f32[16,
    #  32]).
#: f(x=f32[4, 16] · search: sizes that fit)

# === A tensor cannot lose dimensions by being expanded
# fx: x=f32[2, 8, 16]
def f(x):
    return x.expand(8, 16)
    #      ^^^^^^^^^^^^^^^ error[shape]:
    #  a tensor of shape [2, 8, 16] cannot be expanded to [8, 16], which has fewer dimensions (x: f32[2, 8, 16]).
#: f()

# === A shape error between two layers of a module
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(64, 128)
        self.b = nn.Linear(64, 10)

    def forward(self, x):
        h = self.a(x)
        return self.b(h)
        #      ^^^^^^^^^ error[shape]:
        #  matrices of 32×128 and 64×10 cannot be multiplied: the inner sizes 128 and 64 differ (input: f32[4, 8,
        #  128], weight: f32[10, 64], bias: f32[10]).
#: Net(x=f32[4, 8, 64] · search)

# === A dtype error that no input can mend
def f(x: Tensor):
    a = torch.zeros(3, 3, dtype=torch.float64)
    b = torch.zeros(3, 3, dtype=torch.int64)
    return (a @ b) + x
    #       ^^^^^ error[dtype]:
    #  expected m1 and m2 to have the same dtype, but got: double != long int (a: f64[3, 3], b: i64[3, 3]).
#: f(x=f32[4, 64] · search)

# === Inputs that were only guessed never make an error
def f(x: Tensor, table: dict):
    return x @ table[len(table)]["weight"]
    #          ^^^^^^^^^^^^^^^^^ information[inputs]:
    #  KeyError: 0. The inputs are guessed; write the real ones in a comment: `# fx: x=f32[4, 64], table={}`.
#: f(x=f32[4, 64], table={} · search)

# === Inputs that the author gave make an error
# fx: x=f32[8, 16], w=f32[8, 16]
def f(x, w):
    return x @ w
    #      ^^^^^ error[shape]:
    #  matrices of 8×16 and 8×16 cannot be multiplied: the inner sizes 16 and 8 differ (x: f32[8, 16], w: f32[8, 16]).
#: f()

# === A value that fake tensors do not have
def f(x: Tensor):
    return x * max(x.sum(), x.mean())
    #          ^^^^^^^^^^^^^^^^^^^^^^ information[dimension]:
    #  the value of `max(x.sum(), x.mean())` is assumed: False, computed from random values.
    #          ^^^^^^^^^^^^^^^^^^^^^^ information[dimension]:
    #  `max(x.sum(), x.mean())` compares the values of tensors, and a trace has shapes but no values; the trace
    #  continues with random values. Use `torch.maximum`, or stack the tensors and use `amax`: the result stays a
    #  tensor.
#: f(x=f32[4, 64] · search) -> f32[4, 64]
#:   note: traced with random values: the code needs the values of tensors

# === Code that ends the process
import sys

# fx: x=f32[4, 8]
def f(x: Tensor):
    y = x * 2
    sys.exit(3)
   #^^^^^^^^^^^ information[exit]:
   #  the code exits the process (sys.exit(3)). Raise an exception instead; at the top level, move the call under `if
   #  __name__ == "__main__":`.
#: f()

# === A missing package
import no_such_package
#^^^^^^^^^^^^^^^^^^^^^ information[import]:
#  the package `no_such_package` is not installed in the interpreter that fx-lsp uses. Install it, or choose another
#  interpreter (`fx-lsp.interpreter`).
#  line 9: traced f

def f(x: Tensor):
    return no_such_package.g(x)
#: f()

# === A malformed comment is marked where it is wrong
# fx: x=f33[8, 16]
#       ^^^ error[comment]:
#  cannot parse the `# fx:` comment: unknown dtype `f33`; one of f64, f32, f16, f8e4m3fn, f8e5m2, f8e4m3fnuz,
#  f8e5m2fnuz, f8e8m0fnu.
#  line 8: traced f
def f(x):
    return torch.relu(x)
#: f()

# === A comment that names no parameter
# fx: y=f32[8, 16]
#^^^^^^^^^^^^^^^^^ error[comment]: f has no parameter `y`; its parameters are x.
#  line 8: traced f
def f(x):
    return torch.relu(x)
#: f()

# === What a file that is missing would have set
class Table(nn.Module):
    def __init__(self, path="rows.json"):
        super().__init__()
        with open(path) as stream:
            self.rows = stream.read().split()

    def forward(self, x):
        return x * len(self.rows)
        #          ^^^^^^^^^^^^^^ information[inputs]:
        #  it needs a value that is unavailable: FileNotFoundError: [Errno 2] No such file or directory: 'rows.json'.
        #  The inputs are guessed; write the real ones in a comment: `# fx: x=f32[4, 8, 64]`.
#: Table(x=f32[4, 8, 64] · search)

# === A change in place of what only an input saves
class Normalized(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        x = x - x.mean(1, keepdim=True)
        deviation = x.var(1, keepdim=True)
        x /= deviation + 1
       #^^^^^^^^^^^^^^^^^^ information[changed-in-place]:
       #  if an input requires a gradient, the backward pass fails: this modifies in place a tensor that var saved for
       #  it.
        return self.fc(x)
#: Normalized(x=f32[4, 12, 8] · search: sizes that fit) -> f32[4, 12, 8]
#:   note: traced with inputs that do not require grad: the code changes in place what their gradient needs
