"""The documentation: its links lead somewhere, its tables repeat the code, its commands and excerpts exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fx_lsp import cli

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
LINKED = [*PAGES, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))]
FROM_INDEX = re.compile(
    r"(?:uvx|pip install|pipx (?:run|install)|uv tool (?:run|install)|uv add)(?: -\S+)* [\"']?fx-lsp\b"
)
RELEASED = {*ROOT.glob("editors/registries/**/*")}
"""The entries of registries, which are for the time after the first release."""
FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def test_nothing_installs_from_an_index_what_is_not_released():
    """The project does not own its name there yet: whoever registers it would be installed."""
    files = [*LINKED, ROOT / "vscode-extension" / "README.md"]
    files += [path for name in ("editors/*/**/*", "fx_lsp/**/*.py") for path in ROOT.glob(name) if path.is_file()]
    named = {path: FROM_INDEX.findall(path.read_text(encoding="utf-8")) for path in files if path not in RELEASED}
    assert {path: found for path, found in named.items() if found} == {}


def test_links_are_found_with_their_anchors():
    text = "[a](b.md#c) ![d](e.png) `[no](link.md)`\n```\n[no](link.md)\n```\n[outside](https://example.org)\n"
    assert list(links(text)) == [("b.md", "c"), ("e.png", "")]


def test_anchors_are_those_of_headings():
    assert anchors("# What *is* `f(x)`: it?\n\n## Again\n\n## Again\n```\n# no heading\n```\n") == {
        "what-is-fx-it",
        "again",
        "again_1",
    }


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path):
    assert [link for link in links(page.read_text(encoding="utf-8")) if not leads_somewhere(page, *link)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_every_page_is_in_the_navigation(page: Path):
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    assert page.relative_to(DOCS).as_posix() in re.findall(r"[\w/-]+\.md", navigation)


def test_the_tables_of_the_reference_are_up_to_date():
    check = subprocess.run([sys.executable, ROOT / "scripts/reference.py", "--check"], capture_output=True, text=True)
    assert check.returncode == 0, f"run python scripts/reference.py: {check.stdout}{check.stderr}"


def test_a_command_with_an_unknown_option_is_noticed():
    with pytest.raises(SystemExit):
        parsed("graph model.py::f --no-such-option")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_commands_are_those_of_the_command_line(page: Path):
    for command in commands(page.read_text(encoding="utf-8")):
        parsed(command)
        for path in re.findall(r"\bexamples/[\w./-]*\w", command):
            assert (ROOT / path).exists(), command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_excerpts_are_in_the_files_that_they_name(page: Path):
    """A block with `title="examples/…"` has lines of that file, in their order; `…` leaves some out."""
    for _, info, body in FENCE.findall(page.read_text(encoding="utf-8")):
        if title := re.search(r'title="(examples/[^"]+)"', info):
            lines = iter((ROOT / title[1]).read_text(encoding="utf-8").splitlines())
            shown = [line for line in body.splitlines() if line.strip() != "…"]
            assert [line for line in shown if line not in lines] == []


def leads_somewhere(page: Path, path: str, anchor: str) -> bool:
    """Return whether a link of a page names a file, and a heading in it if it names one."""
    file = (page.parent / path).resolve() if path else page
    if not file.exists():
        return False
    return not anchor or (file.suffix == ".md" and anchor in anchors(file.read_text(encoding="utf-8")))


def links(text: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the anchor of each link of a page that leads to no other host."""
    prose = re.sub(r"`[^`\n]*`", "`code`", FENCE.sub("", text))
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield path, anchor


def anchors(text: str) -> set[str]:
    """Return the anchors that the site gives to the headings of a page."""
    found: list[str] = []
    for heading in re.findall(r"^#+ +(.*)$", FENCE.sub("", text), re.MULTILINE):
        words = re.sub(r"[^\w\s-]", "", re.sub(r"[`*]", "", heading)).strip().lower()
        slug = re.sub(r"[\s-]+", "-", words)
        again = sum(1 for other in found if re.fullmatch(rf"{re.escape(slug)}(_\d+)?", other))
        found.append(f"{slug}_{again}" if again else slug)
    return set(found)


def commands(text: str) -> Iterator[str]:
    """Yield what follows `$ fx-lsp` in the blocks of a page that show a terminal."""
    for _, info, body in FENCE.findall(text):
        if info.startswith("console"):
            for line in body.replace("\\\n", " ").splitlines():
                if found := re.match(r"\s*\$ fx-lsp (.*)", line):
                    yield found[1]


def parsed(command: str) -> None:
    """Parse the arguments of a command as the command line does. Raises SystemExit if they are wrong."""
    arguments = shlex.split(re.split(r" [>|] ", command)[0], comments=True)
    if arguments != ["--version"]:
        cli._parser(arguments[0])[0].parse_args(arguments)
