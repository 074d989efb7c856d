"""`fx-lsp check --since REV` checks the files that changed since a git revision, and those that import them."""

from __future__ import annotations

from pathlib import Path

import pytest
from terminal import git

from fx_lsp.commands.check.changes import affected_by, changed_since
from fx_lsp.commands.sources import find_sources
from fx_lsp.errors import UsageError

FILES = {
    "pyproject.toml": "",
    "pkg/__init__.py": "",
    "pkg/sizes.py": "WIDTH = 4\n",
    "pkg/blocks.py": "from .sizes import WIDTH\n",
    "pkg/models.py": "from . import blocks\n",
    "scripts/train.py": "def main():\n    import pkg.models\n",
    "scripts/helper.py": "import json\n",
    "scripts/uses_helper.py": "import helper\n",
    "alone.py": "import torch\n",
    "broken.py": "import (\n",
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit, and no change since."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def checked(folder: Path, revision: str = "HEAD") -> list[str]:
    sources = find_sources([str(folder)])
    affected = affected_by(changed_since(revision, [str(Path(source.file).parent) for source in sources]), sources)
    return [Path(source.file).relative_to(folder).as_posix() for source in affected]


@pytest.mark.parametrize(
    ("changed", "affected"),
    [
        ("alone.py", ["alone.py"]),
        ("pkg/sizes.py", ["pkg/blocks.py", "pkg/models.py", "pkg/sizes.py", "scripts/train.py"]),
        ("pkg/__init__.py", ["pkg/__init__.py", "pkg/blocks.py", "pkg/models.py", "pkg/sizes.py", "scripts/train.py"]),
        ("scripts/helper.py", ["scripts/helper.py", "scripts/uses_helper.py"]),
        ("broken.py", ["broken.py"]),
        ("pyproject.toml", sorted(name for name in FILES if name.endswith(".py"))),
        ("notes.txt", []),
    ],
)
def test_what_a_change_affects(repository: Path, changed: str, affected: list[str]):
    assert checked(repository) == []
    (repository / changed).write_text("# changed\n")
    assert sorted(checked(repository)) == affected


def test_new_and_removed_files_are_changes(repository: Path):
    (repository / "new.py").write_text("import scripts.helper\n")
    assert checked(repository) == ["new.py"]
    (repository / "pkg/sizes.py").unlink()
    assert checked(repository) == ["new.py", "pkg/blocks.py", "pkg/models.py", "scripts/train.py"]


def test_a_committed_change_counts_since_an_earlier_revision(repository: Path):
    git(repository, "mv", "pkg/sizes.py", "pkg/widths.py")
    git(repository, "commit", "-qm", "second")
    assert checked(repository) == []
    assert checked(repository, "HEAD~1") == ["pkg/blocks.py", "pkg/models.py", "pkg/widths.py", "scripts/train.py"]


@pytest.mark.parametrize("revision", ["nothing", "--output=x", "HEAD:alone.py", ""])
def test_an_unknown_revision(repository: Path, revision: str):
    with pytest.raises(UsageError, match=f"--since: `{revision}` is not a revision of the git repository {repository}"):
        checked(repository, revision)
    assert not (repository / "x").exists()


def test_without_a_repository(tmp_path: Path):
    (tmp_path / "model.py").write_text("")
    with pytest.raises(UsageError, match=f"--since needs a git repository, and {tmp_path} is not in one"):
        checked(tmp_path)


def test_without_git(repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="--since needs git, which is not on PATH"):
        checked(repository)
