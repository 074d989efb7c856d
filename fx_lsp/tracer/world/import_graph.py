"""Record which modules of a project import which: a target depends on fewer modules than its process has imported."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any
from unittest.mock import patch


@dataclass
class ImportGraph:
    """The names of the modules that each file has imported so far."""

    imported: dict[str, set[str]] = field(default_factory=dict[str, set[str]])

    @contextmanager
    def recording(self) -> Generator[None, None, None]:
        """Record the imports of the code that runs inside."""
        plain: Callable[..., Any] = builtins.__import__
        dynamic = importlib.import_module

        def statement(
            name: str,
            globals: Mapping[str, Any] | None = None,
            locals: Mapping[str, Any] | None = None,
            fromlist: Sequence[str] | None = (),
            level: int = 0,
        ) -> Any:
            module = plain(name, globals, locals, fromlist, level)
            if globals is not None and isinstance(file := globals.get("__file__"), str):
                full = name
                if level:
                    with suppress(ImportError, ValueError, TypeError):
                        full = importlib.util.resolve_name("." * level + name, globals.get("__package__"))
                self._add(file, full, fromlist or ())
            return module

        def function(name: str, package: str | None = None) -> ModuleType:
            module = dynamic(name, package)
            file = sys._getframe(1).f_globals.get("__file__")
            if isinstance(file, str):
                self._add(file, module.__name__, ())
            return module

        with patch.object(builtins, "__import__", statement), patch.object(importlib, "import_module", function):
            yield

    def _add(self, file: str, name: str, parts: Sequence[str]) -> None:
        words = name.split(".")
        names = {".".join(words[: i + 1]) for i in range(len(words))}
        names |= {inner for part in parts if (inner := f"{name}.{part}") in sys.modules}
        self.imported.setdefault(file, set()).update(names)

    def reached(self, file: str) -> frozenset[str]:
        """Return the files of the modules that a file imports, directly or through other modules."""
        return frozenset(self._reached(file))

    def _reached(self, file: str) -> Iterator[str]:
        seen, waiting = {file}, [file]
        while waiting:
            for name in self.imported.get(waiting.pop(), ()):
                inner = getattr(sys.modules.get(name), "__file__", None)
                if isinstance(inner, str) and inner not in seen:
                    seen.add(inner)
                    waiting.append(inner)
                    yield inner
