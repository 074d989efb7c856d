# shows: lenses, hints, hovers, documents
# What is shown of a target that fails, up to the line that fails.


# fx: x=f32[8, 128]
def g(x):
#   ^ lens not traced: line 8
#   ^ lens show partial graph
#      ^ hint : f32[8, 128]
#   ^ document
#  def torch(x: f32[8, 128]):
#      # user.py:7  y = x.sin()
#      y: f32[8, 128] = x.sin()
#      # user.py:8  z = y @ y
#      matmul = y.matmul(y)  # fails here
    y = x.sin()
    #^ hint : f32[8, 128]
    #     ^ hover
    #  f32[8, 128]
    #  torch · 1 op
    #  x.sin() -> f32[8, 128]
    #  *partial: up to line 8, where it fails*
    z = y @ y
    #     ^ hover
    #  **Not traced** (shape): matrices of 8×128 and 8×128 cannot be multiplied: the inner sizes 128 and 8 differ (y:
    #  f32[8, 128], y: f32[8, 128]).
    #  Tried with
    #  - `x: f32[8, 128]` · from the `# fx:` comment
    return z.cos()
    #      ^ hover
    #  *not run: line 8 fails*
