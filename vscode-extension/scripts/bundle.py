"""Puts the server into `server/`: fx_lsp and the pure Python packages that it needs, for Python 3.10 and newer.

Those that benchmarks need are with them, but for what draws pictures: the extension draws its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
REPOSITORY = HERE.parent
TARGET = HERE / "server"
OLDEST = "3.10"
COMPILED = ("matplotlib",)
BACKPORTS = ("exceptiongroup", "tomli", "typing_extensions")
"""What dependencies of ours need on the oldest Python alone."""
MAIN = """\
import sys

from fx_lsp.cli import main

sys.exit(main())
"""


def main() -> int:
    """Makes the folder anew."""
    shutil.rmtree(TARGET, ignore_errors=True)
    wanted = (*dependencies((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")), *BACKPORTS)
    constraints = constrained((REPOSITORY / "constraints.txt").read_text(encoding="utf-8"), wanted)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    pure = ["--only-binary=:all:", "--platform=any", "--implementation=py", "--abi=none", f"--python-version={OLDEST}"]
    done = subprocess.run([*pip, *pure, "--target", str(TARGET), *wanted, *constraints])
    if done.returncode:
        return done.returncode
    for unused in TARGET.glob("*.dist-info/*"):
        if unused.is_file() and unused.name not in ("METADATA", "LICENSE"):
            unused.unlink()
    leave = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(REPOSITORY / "fx_lsp", TARGET / "fx_lsp", ignore=leave)
    shutil.copytree(REPOSITORY / "docs" / "problems", TARGET / "fx_lsp" / "problems")
    (TARGET / "__main__.py").write_text(MAIN, encoding="utf-8")
    for page in ("LICENSE", "CHANGELOG.md"):
        shutil.copy(REPOSITORY / page, HERE / page)
    return 0


def dependencies(project: str) -> tuple[str, ...]:
    """The requirements under `[project]` and of `bench`, without markers: what one Python needs, all of them get."""
    found = re.findall(r"^(?:dependencies|bench) = \[(.*?)\]$", project, re.MULTILINE | re.DOTALL)
    assert len(found) == 2, "pyproject.toml has no dependencies, or none for benchmarks"
    texts = [text.partition(";")[0].strip() for text in re.findall(r'"([^"]+)"', " ".join(found))]
    return tuple(text for text in texts if not text.startswith(COMPILED))


def constrained(text: str, wanted: tuple[str, ...]) -> list[str]:
    """The pinned versions of what is wanted, as further requirements."""
    names = {re.split(r"[^\w.-]", requirement)[0] for requirement in wanted}
    lines = (line.partition(";")[0].strip() for line in text.splitlines())
    return [line for line in lines if line.partition("==")[0] in names]


if __name__ == "__main__":
    sys.exit(main())
