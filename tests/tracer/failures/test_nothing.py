"""What turns out to be no tensor code is nothing: no lens, no failure."""

import torch

from fx_lsp.tracing.source.arrays import ATTRIBUTES_OF_TENSORS
from fx_lsp.tracing.source.tensor_code import TENSOR_METHODS

PRELUDE = "import torch\nimport torch.nn.functional as F\n"
META = """
class Meta:
    def __init__(self, values):
        self.width, self.height = values.shape

def f(image):
    return Meta(image).width + image.shape[0]
"""
DECODES = """
import json

def f(record):
    fields = json.loads(record)
    return fields, record.shape
"""


def test_a_run_without_an_operation_of_pytorch(trace):
    assert trace(PRELUDE + META).failure.kind == "nothing"


def test_a_guess_that_another_library_refuses(trace):
    failure = trace(PRELUDE + DECODES).failure
    assert failure.kind == "nothing"
    assert failure.message.startswith("f runs no PyTorch operation before it fails: Expecting value")


def test_the_same_is_said_where_the_author_wants_it_traced(trace):
    assert trace(PRELUDE + DECODES, comment="record=f32[4]").failure.kind != "nothing"
    assert trace(PRELUDE + META, comment="image=f32[4, 8]").trace.inputs


def test_tensor_code_that_needs_what_nobody_knows_is_a_failure(trace):
    source = "def f(x, config):\n    width = config.load()['width'].real\n    return F.relu(x) * width"
    assert trace(PRELUDE + source).failure.kind != "nothing"


def test_methods_of_an_object_that_cannot_be_made(trace):
    source = """
import json

class Schedule:
    def __init__(self, betas):
        self.betas = json.loads(betas)

    def f(self, x):
        return x.sum(dim=0) * self.betas

    def g(self, x):
        return x.sum()
"""
    assert trace(PRELUDE + source, "Schedule.f").failure.kind == "construct"
    assert trace(PRELUDE + source, "Schedule.g").failure.kind == "nothing"


def test_an_operation_that_does_not_fit_is_a_failure(trace):
    source = "def f(x):\n    y = x.sum(0)\n    return y.nonsense + x.shape[0]"
    assert trace(PRELUDE + source).failure.kind != "nothing"


def test_what_tensors_have_is_known_by_name():
    public = {name for name in dir(torch.Tensor) if not name.startswith("_") and not name.endswith("_")}
    assert public <= ATTRIBUTES_OF_TENSORS | TENSOR_METHODS
