# shows: inline values
# The shapes that a debugger evaluates beside the lines before the one that it has stopped at.


# === after some lines
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


# === after a loop
# fx: x=f32[4, 8]
def repeated(x, n=2):
#   ^^^^^^^^ inline x.shape
    for _ in range(n):
        x = x.relu()
       #^^^^^^^^^^^^ inline x.shape
    return x.sum()  # the debugger has stopped here


# === at the first line
# fx: x=f32[4, 8]
def first(x):  # the debugger has stopped here
    return x.sum()
