"""Writes the tables of docs/contributing/licenses.md: what fx-lsp runs on, and what the VS Code extension contains.

`python scripts/licenses.py` brings the page up to date, from the metadata of the installed packages and from
`vscode-extension/package-lock.json`; with `--check` it only says whether it is.
"""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import PackageNotFoundError, metadata, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "vscode-extension" / "scripts"))

from bundle import BACKPORTS, dependencies  # noqa: E402

PAGE = ROOT / "docs" / "contributing" / "licenses.md"
LOCK = ROOT / "vscode-extension" / "package-lock.json"
BUNDLED = ("@observablehq/plot", "elkjs", "vscode-languageclient")
"""The npm packages that the extension's sources import."""
OPTIONAL = ("torch", "triton", "matplotlib", "mcp")
"""What is used where it is installed, and is in no bundle. These have dependencies of their own."""
ELSEWHERE = {"exceptiongroup": "MIT"}
"""The licenses of packages that only older versions of Python need."""
CLASSIFIER = "License :: OSI Approved :: "


def main() -> int:
    """Write the page, or say that it is not up to date."""
    written, text = PAGE.read_text(encoding="utf-8"), page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    print("" if written == text else f"{PAGE.relative_to(ROOT)} is not up to date: run python scripts/licenses.py")
    return int(written != text)


def page() -> str:
    """Return the text of the page as it should be."""
    ours = python_packages()
    rows = [(name, license_of(name), "server, .vsix") for name in sorted(ours)]
    rows += [(name, license_of(name), "where it is installed") for name in OPTIONAL]
    text = replaced(PAGE.read_text(encoding="utf-8"), "Python", table(rows))
    return replaced(text, "npm", table([(name, license_, ".vsix") for name, license_ in npm_packages().items()]))


def replaced(text: str, name: str, content: str) -> str:
    """Return a page with `content` between the two marks of that name."""
    begin, end = f"<!-- begin: {name} (python scripts/licenses.py) -->", f"<!-- end: {name} -->"
    before, _, rest = text.partition(begin)
    _, mark, after = rest.partition(end)
    if not mark:
        raise ValueError(f"{PAGE.name} has no marks for {name}")
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


def table(rows: list[tuple[str, str, str]]) -> str:
    """Return packages as a table of Markdown."""
    return "\n".join(["| package | license | in |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)])


def python_packages() -> set[str]:
    """Return the Python packages that the server and its benchmarks need, and those that these need."""
    todo = [*dependencies((ROOT / "pyproject.toml").read_text(encoding="utf-8")), *BACKPORTS]
    names: set[str] = set()
    while todo:
        name = re.split(r"[^\w.-]", todo.pop())[0].lower().replace("_", "-")
        if name in names:
            continue
        names.add(name)
        try:
            needed = [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:
            continue
        todo += [one.name for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    return names


def license_of(name: str) -> str:
    """Return the license that an installed package declares."""
    try:
        about = metadata(name)
    except PackageNotFoundError:
        return ELSEWHERE.get(name, "not installed here")
    classifiers = [c.removeprefix(CLASSIFIER) for c in about.get_all("Classifier") or [] if c.startswith(CLASSIFIER)]
    declared = about["License-Expression"] or ", ".join(classifiers) or about["License"]
    return (declared or "not declared").removesuffix(" License")


def npm_packages() -> dict[str, str]:
    """Return the npm packages in the bundles of the extension, with their licenses."""
    packages: dict[str, Any] = json.loads(LOCK.read_text(encoding="utf-8"))["packages"]
    todo, licenses = [*BUNDLED], dict[str, str]()
    while todo:
        name = todo.pop()
        entry = packages[f"node_modules/{name}"]
        if name not in licenses:
            licenses[name] = entry["license"]
            todo += entry.get("dependencies", ())
    return dict(sorted(licenses.items()))


if __name__ == "__main__":
    sys.exit(main())
