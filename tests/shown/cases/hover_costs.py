# shows: hovers
# The cost of a line, forward and backward, and whether arithmetic or memory bounds it.


# fx: x=f32[64, 256], w=f32[256, 512]
def project(x, w):
    y = x @ w
    #     ^ hover
    #  f32[64, 512]
    #  forward 16.8 MFLOP, 704 KiB read and written · backward 33.6 MFLOP, 1.4 MiB read and written
    #  23.3 FLOP per byte: bound by arithmetic on an H100 (above 20)
    #  forward · 3 ops
    #  aten.mm.default(x, w) -> f32[64, 512]
    #  aten.t.default(x) -> f32[256, 64](1, 256)
    #  aten.t.default(w) -> f32[512, 256](1, 512)
    #  backward · 2 ops
    #  aten.mm.default(t, threshold_backward) -> f32[256, 512]
    #  aten.mm.default(threshold_backward, t_1) -> f32[64, 256]
    return y.relu()
    #        ^ hover
    #  f32[64, 512]
    #  forward 256 KiB read and written · backward 384 KiB read and written
    #  saves `detach_1`, 128 KiB, for `threshold_backward` in backward
    #  *PyTorch could recompute it; by its min-cut, saving moves fewer bytes. To recompute it: 4 ops · 16.8 MFLOP, 960
    #  KiB read and written*
    #  forward · 3 ops
    #  aten.relu.default(y) -> f32[64, 512]
    #  aten.detach.default(relu) -> f32[64, 512]
    #  aten.detach.default(detach) -> f32[64, 512]
    #  backward · 1 op
    #  aten.threshold_backward.default(grad_out, detach_1, 0) -> f32[64, 512]
