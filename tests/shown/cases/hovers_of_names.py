# shows: hovers
# A name says what it is bound to, an expression what it gives, and nothing else says anything.
import torch


@torch.no_grad()
def f(x, w, n=2):
#        ^ hover
#  `w: ~f32[64, 32]` · guessed, sizes that fit
#  *`~`: a guessed size; nothing in the code fixes it*
    y = x @ w
    #^ hover
    #  y: ~f32[4, 32]
    #  *`~`: a guessed size; nothing in the code fixes it*
    #   ^ hover
    #  x: ~f32[4, 64]
    #  *`~`: a guessed size; nothing in the code fixes it*
    #     ^ hover
    #  ~f32[4, 32]
    #  *`~`: a guessed size; nothing in the code fixes it*
    for _ in range(n):
    #        ^^^^^ hover
    #              ^ hover
    #  n = 2
        x = x.exp().unsqueeze(0)
        #^ hover
        #  x: ~f32[1, 4, 64]
        #  varies: later iterations of the loop have another spec
        #  *`~`: a guessed size; nothing in the code fixes it*
        #   ^ hover
        #  x: ~f32[4, 64]
        #  *`~`: a guessed size; nothing in the code fixes it*
    return x.sum(dim=-1) + 1
    #      ^ hover
    #  x: ~f32[1, 4, 64]
    #  varies: later iterations of the loop have another spec
    #  *`~`: a guessed size; nothing in the code fixes it*
    #                    ^ hover
    #  ~f32[1, 1, 4]
    #  *`~`: a guessed size; nothing in the code fixes it*
    #  inference ~32 B read and written
    #  inference · 1 op
    #  aten.add.Tensor(sum_1, 1) -> f32[1, 1, 4]
