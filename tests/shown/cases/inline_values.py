# shows: inline values
# The shapes that a debugger evaluates beside the lines before the one that it has stopped at.


# fx: x=f32[4, 8], w=f32[8, 16], scale=2.0
def project(x, w, scale):
#   ^^^^^^^ inline x.shape
#   ^^^^^^^ inline w.shape
    y = x @ w
   #^^^^^^^^^ inline y.shape
    z = y * scale
   #^^^^^^^^^^^^^ inline z.shape
    total = z.sum()  # the debugger has stopped here
    return total / 2
