"""Sources with what is left of them in a slice: `#-` stands behind a line that is gone, `#: …` behind a changed one."""

import re
import textwrap
from itertools import zip_longest


def source_of(text: str) -> str:
    """Return a source without its marks."""
    return re.sub(r"  #(-|: .*)$", "", textwrap.dedent(text), flags=re.MULTILINE)


def marked(source: str, sliced: str) -> str:
    """Return a source with the marks of a slice of it."""
    rows: list[str] = []
    for old, new in zip_longest(source.split("\n"), sliced.split("\n"), fillvalue=""):
        same = old.rstrip() == new.rstrip()
        rows.append(old if same else f"{old}  #: {new.strip()}" if new.strip() else f"{old}  #-")
    return "\n".join(rows)
