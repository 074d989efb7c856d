"""How often loops run while a script is rehearsed: two turns show what goes from one training step to the next."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

TRAINING_TURNS = 2
"""How many turns of a loop that trains follow each other."""


class Turns:
    """Ends loops whose last turns trained. `collected` are the names of what loops added to that were ended so."""

    def __init__(self) -> None:
        self.collected: set[str] = set()
        self._backwards = 0

    @contextmanager
    def counting(self) -> Generator[None, None, None]:
        """Inside, backward passes are counted."""
        original: Callable[..., Any] = torch.autograd.backward

        def backward(*args: Any, **kwargs: Any) -> Any:
            self._backwards += 1
            return original(*args, **kwargs)

        torch.autograd.backward = backward
        try:
            yield
        finally:
            torch.autograd.backward = original

    def through(self, items: Iterable[Any], *names: str) -> Iterator[Any]:
        """Yield the items that a loop goes through, which adds to what has these names."""
        again = self.again(*names)
        for item in items:
            if not again():
                return
            yield item

    def again(self, *names: str) -> Callable[[], bool]:
        """Return what tells at the begin of each turn of a loop whether there is to be one."""
        trained: list[int] = []

        def is_wanted() -> bool:
            trained.append(self._backwards)
            last = trained[-TRAINING_TURNS - 1 :]
            is_over = len(last) > TRAINING_TURNS and all(last[i] < last[i + 1] for i in range(TRAINING_TURNS))
            if is_over:
                self.collected |= set(names)
            return not is_over

        return is_wanted
