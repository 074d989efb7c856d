"""Writes the tables of docs/reference/ that repeat the code: settings from the schema, commands from their parsers.

`python scripts/reference.py` brings the pages up to date; with `--check` it only says which of them are not.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from fx_lsp.cli import COMMANDS, command_of  # noqa: E402
from fx_lsp.server.settings import _ROWS as ROWS  # noqa: E402

PAGES = ROOT / "docs" / "reference"
PREFIX = "fx-lsp."
BEGIN, END = "<!-- begin: {} (python scripts/reference.py) -->", "<!-- end: {} -->"


def main() -> int:
    """Write the pages that are not up to date, or name them."""
    check = "--check" in sys.argv[1:]
    stale = [page for page, text in pages().items() if page.read_text(encoding="utf-8") != text]
    for page in stale:
        if not check:
            page.write_text(pages()[page], encoding="utf-8")
        print(f"{page.relative_to(ROOT)} {'is not up to date' if check else 'is written'}")
    return 1 if check and stale else 0


def pages() -> dict[Path, str]:
    """Return each page with tables, and its text with these tables as they should be."""
    every, of_vscode = settings()
    settings_page, commands_page = PAGES / "settings.md", PAGES / "commands.md"
    text = replaced(settings_page.read_text(encoding="utf-8"), "settings", every)
    return {
        settings_page: replaced(text, "settings of VS Code", of_vscode),
        commands_page: replaced(commands_page.read_text(encoding="utf-8"), "commands", "\n".join(commands())),
    }


def replaced(text: str, name: str, content: str) -> str:
    """Return a page with `content` between the two marks of that name."""
    begin, end = BEGIN.format(name), END.format(name)
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"a page of docs/reference has no marks for {name}")
    return f"{before}{begin}\n\n{content.strip()}\n\n{end}{after}"


def settings() -> tuple[str, str]:
    """Return the table of settings that every client may send, and the table of those that VS Code alone reads."""
    schema = json.loads((ROOT / "vscode-extension" / "package.json").read_text(encoding="utf-8"))
    properties = {
        name.removeprefix(PREFIX): value for name, value in schema["contributes"]["configuration"]["properties"].items()
    }
    of_every_client = {row.key for row in ROWS}
    return (
        table({name: value for name, value in properties.items() if name in of_every_client}),
        table({name: value for name, value in properties.items() if name not in of_every_client}),
    )


def table(properties: dict[str, Any]) -> str:
    """Return settings as a table of Markdown."""
    lines = ["| setting | type | default | meaning |", "|---|---|---|---|"]
    for name, value in properties.items():
        kind = " or ".join(f"`{choice}`" for choice in value["enum"]) if "enum" in value else value["type"]
        default = "empty" if value["default"] == "" else f"`{json.dumps(value['default'])}`"
        meaning = cell(value.get("markdownDescription") or value["description"])
        if name.startswith("problems."):
            code = name.removeprefix("problems.")
            meaning += f" [`{code}`](../problems/{code}.md)"
        lines.append(f"| `{name}` | {kind} | {default} | {meaning} |")
    return "\n".join(lines)


def commands() -> Iterator[str]:
    """Yield the lines about all commands."""
    for name, purpose in COMMANDS.items():
        parser = argparse.ArgumentParser(f"fx-lsp {name}", add_help=False)
        command_of(name).add_arguments(parser)
        yield from (f"## `fx-lsp {name}`", "", f"{purpose[0].upper()}{purpose[1:]}.", "")
        yield from ("| argument | meaning |", "|---|---|")
        for action in parser._actions:
            yield f"| {spelled(action)} | {cell((action.help or '').replace('%%', '%'))} |"
        yield ""


def spelled(action: argparse.Action) -> str:
    """Return an argument as it is written on a command line, with the name of its value or its choices."""
    choices = ["{" + ",".join(map(str, action.choices)) + "}"] if action.choices is not None else []
    named = action.metavar if isinstance(action.metavar, tuple) else [action.metavar] if action.metavar else []
    values = [*named] or choices or ([action.dest.upper()] if action.nargs != 0 else [])
    spellings = action.option_strings or [""]
    return ", ".join(f"`{cell(' '.join([spelling, *values]).strip())}`" for spelling in spellings)


def cell(text: str) -> str:
    """Return text on one line that does not end a cell."""
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
