# shows: branches, hovers
# Code that did not run is faded, with a hover that says why.


# fx: x=f32[4, 4]
def outer(x, targets=None, flag=False):
    if targets is not None:
        return x - targets
        #        ^ hover
        #  f32[4, 4]
        #  *with targets: ~f32[4]* · *branch not taken: targets is None*
    if flag:
        return -x
    if x.dim() == 3:
        x = x[0]
       #^^^^^^^^ faded branch not taken: x.dim() is 2
    return x.sin()
