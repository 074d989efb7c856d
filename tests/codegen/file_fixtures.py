"""Shared by tests of generated files: the files for the code of a test module, and what they print."""

from __future__ import annotations

from pathlib import Path

import pytest
from files import generated, names_in, outputs


@pytest.fixture(scope="module")
def files(request: pytest.FixtureRequest, warm_torch: None) -> dict[str, str]:
    """The files for what `SOURCE` of the module defines, for `SIZES`."""
    module = request.module
    file, names = Path("/project/model.py"), names_in(module.SOURCE)
    return generated(file, module.SOURCE, names, getattr(module, "SIZES", "traced"))


@pytest.fixture(scope="module")
def said(
    request: pytest.FixtureRequest, files: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """What their comparisons with the originals print, then the `SCRIPTS` of the module beside them."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "original.py").write_text(request.module.SOURCE)
    return outputs(folder, {**files, **getattr(request.module, "SCRIPTS", {})})


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """A number of steps of a loop that counts as many."""
    from fx_lsp.codegen.graph import loops

    monkeypatch.setattr(loops, "MIN_STEPS_TO_SAVE", 6)
    return 6
