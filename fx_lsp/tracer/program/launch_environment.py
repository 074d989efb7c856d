"""The environment that `torchrun` gives each process, for programs that it is meant to start."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

_OF_ONE_PROCESS = {
    **dict.fromkeys(("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK"), "0"),
    **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE", "GROUP_WORLD_SIZE"), "1"),
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500",
}
"""What it says where it starts a single process."""


class _Launched(os._Environ):  # type: ignore[type-arg]
    """Has those variables for who cannot do without them: `environ["RANK"]` is there, and `"RANK" in environ` is not
    true, by which programs tell whether they were started so."""

    def __getitem__(self, key: Any) -> Any:
        try:
            return super().__getitem__(key)
        except KeyError:
            if key in _OF_ONE_PROCESS:
                return _OF_ONE_PROCESS[key]
            raise

    def __contains__(self, key: object) -> bool:
        return any(key == name for name in self)

    def get(self, key: Any, default: Any = None) -> Any:
        try:
            return super().__getitem__(key)
        except KeyError:
            return default


@contextmanager
def launched() -> Generator[None, None, None]:
    """Inside, a variable that `torchrun` sets is there when it is asked for without an alternative."""
    environment: Any = os.environ
    before = environment.__class__
    environment.__class__ = _Launched
    try:
        yield
    finally:
        environment.__class__ = before
