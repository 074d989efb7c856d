"""The processes that distributed code expects: a group of one, whose collectives do nothing."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType

import torch.distributed as dist


def lacks_group(error: BaseException | None) -> bool:
    """Whether code failed because no process group has been set up."""
    traceback: TracebackType | None = error.__traceback__ if error is not None else None
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None or not dist.is_available() or dist.is_initialized():
        return False
    return traceback.tb_frame.f_globals.get("__name__") == "torch.distributed.distributed_c10d"


def start_group() -> bool:
    """Set up a group of this process alone; False where this PyTorch has none that needs no network."""
    with suppress(Exception):
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    return dist.is_initialized()
