# targets: attend, Attention, by_device, imports, synchronized, printed
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import flex_attention


@torch.compile(fullgraph=True)
def attend(q, k, v):  # fx: q=f32[1, 2, 128, 64], k=f32[1, 2, 128, 64], v=f32[1, 2, 128, 64]
    return flex_attention(q, k, v)


class Attention(torch.nn.Module):
    def forward(self, q, k, v):  # fx: q=f32[1, 2, 128, 64], k=f32[1, 2, 128, 64], v=f32[1, 2, 128, 64]
        return flex_attention(q, k, v)


@torch.compile(fullgraph=True)
def by_device(x):  # fx: x=f32[8]@cuda
    if torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 9:
        return x * torch.cuda.device_count()
    return torch.cuda.get_device_properties(x.device).multi_processor_count * x


@torch.compile(fullgraph=True)
def imports(x):  # fx: x=f32[8]
    import colorsys

    return F.rms_norm(x, (8,)) * len(colorsys.__name__)


@torch.compile(fullgraph=True)
def synchronized(x):  # fx: x=f32[8]@cuda
    torch.cuda.synchronize()
    return x + 1


@torch.compile(fullgraph=True)
def printed(x):  # fx: x=f32[8]
    print("about to add")
   #^^^^^^^^^^^^^^^^^^^^^ error[graph-break]:
   #  torch.compile(fullgraph=True) raises here (GB0059): Dynamo does not know how to trace builtin operator `print`
   #  with argument types ['str'] (has_kwargs False). Avoid calling builtin `print` with argument types ['str'].
   #  Consider using an equivalent alternative function/method to `print`.
    y = x + 1
    torch._dynamo.graph_break()
   #^^^^^^^^^^^^^^^^^^^^^^^^^^^ error[graph-break]:
   #  torch.compile(fullgraph=True) raises here (GB0025): User-inserted graph break. Message: None. Remove the
   #  `torch._dynamo.graph_break()` call.
    return y * 2
