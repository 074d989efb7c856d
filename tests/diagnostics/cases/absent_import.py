# targets: First, Decides, Computes, NeverAModule, OnlyThroughWhatIsMissing
import torch
from torch import nn
from helpers.kinds import Kind
#^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ information[import]:
#  the package `helpers` is not installed in the interpreter that fx-lsp uses. Install it, or choose another
#  interpreter (`fx-lsp.interpreter`).
#  line 29: traced Computes
#  line 46: also reached from OnlyThroughWhatIsMissing


class Base(nn.Module):
    def __init__(self, width, kind):
        super().__init__()
        self.project = nn.Linear(width, width)


class First(Base):
    def __init__(self, width):
        super().__init__(width, Kind.FIRST)

    def forward(self, x):
        return self.project(x).relu()


class Decides(Base):
    def __init__(self, width, kind):
        super().__init__(width, kind)
        self.is_first = kind is Kind.FIRST

    def forward(self, x):
        return self.project(x) if self.is_first else x


class Computes(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.project = nn.Linear(width, Kind.FIRST.value)

    def forward(self, x):
        return self.project(x)


class NeverAModule(nn.Module):
    def __init__(self, scale):
        self.scale = scale
       #^^^^^^^^^^ information[construct]:
       #  AttributeError: cannot assign module before Module.__init__() call (constructing NeverAModule). The inputs
       #  are guessed; write the real ones in a comment: `# fx: init(scale=…)`.

    def forward(self, x):
        return x * self.scale


class OnlyThroughWhatIsMissing(nn.Module):
    def __init__(self, width):
        super().__init__(**Kind.defaults())
        self.width = width

    def forward(self, x):
        return x * self.width
