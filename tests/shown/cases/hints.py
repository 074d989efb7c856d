# shows: hints
import torch
from torch import Tensor, nn


# === several targets of one statement
# fx: x=f32[2, 4]
def g(x):
#      ^ hint : f32[2, 4]
    a, (b, n) = x[0], (x.long(), x.dim())
    #^ hint : f32[4]
    #    ^ hint : i64[2, 4]
    #       ^ hint =2
    return a
    #       ^ hint -> f32[4]


# === annotated names, several names, with, and an assignment inside of an expression
# fx: x=f32[2, 4]
def g(x):
#      ^ hint : f32[2, 4]
    a: Tensor = x + 1
    #        ^ hint f32[2, 4]
    b = c = a[0]
    #^ hint : f32[4]
    #    ^ hint : f32[4]
    with torch.enable_grad():
        if (k := c.exp()) is not None:
        #    ^ hint : f32[4]
        #                             ^ hint saves 16 B for backward of exp
            for row in k:
            #      ^ hint : f32[]
                b = b + row
                #^ hint : f32[4]
    return (
        b + 1
        #    ^ hint -> f32[4]
    )


# === columns count bytes
# fx: x=f32[2, 4]
def g(x):
#      ^ hint : f32[2, 4]
    s = "🙂é"; größe = x.sin()
    #                    ^ hint : f32[2, 4]
    return größe
    #             ^ hint -> f32[2, 4]


# === a method, and what a line keeps for backward
# fx: x=f32[2, 4]
class Net(nn.Module):
    def forward(self, x):
    #                  ^ hint : f32[2, 4]
        y = x.exp().sin()
        #^ hint : f32[2, 4]
        #                ^ hint saves 32 B for backward of sin, exp
        return y
        #       ^ hint -> f32[2, 4]


# === guessed sizes, and a value that varies
def g(x, w, n=4):
#      ^ hint : ~f32[4, 64]
#         ^ hint : ~f32[64, 32]
    y = x @ w
    #^ hint : ~f32[4, 32]
    for _ in range(n):
        y = y.relu().unsqueeze(0)
        #^ hint : ~f32[1, 4, 32] (varies)
        #                        ^ hint saves ~2 KiB for backward of relu
    return y
    #       ^ hint -> ~f32[1, 1, 1, 1, 4, 32]
