"""The pictures of the pages: screenshots that the scenarios take, each with the lenses that are seen in it.

Run as a script, it copies the latest screenshots into the pages.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

PAGES = Path(__file__).parent.parent.parent.parent / "docs" / "images"
SHOTS = Path(os.environ.get("FX_SHOTS") or Path(tempfile.gettempdir()) / "fx-lsp-screenshots")
"""Where scenarios write pictures of what they did."""

LENSES = "lenses"
"""The key of the lenses in the text of a picture."""


def keep(name: str) -> None:
    """Copy a screenshot into the pages."""
    text = PngInfo()
    text.add_itxt(LENSES, seen(name))
    Image.open(SHOTS / f"{name}.png").convert("RGB").save(PAGES / f"{name}.png", pnginfo=text, optimize=True)


def seen(name: str) -> str:
    """Return the lenses that are seen in the latest screenshot of this name."""
    return (SHOTS / f"{name}.txt").read_text(encoding="utf-8")


def shown(name: str) -> str | None:
    """Return the lenses that are seen in the picture of this name in the pages; None if it does not say."""
    picture: Image.Image = Image.open(PAGES / f"{name}.png")
    return picture.info.get(LENSES)


if __name__ == "__main__":
    for page in PAGES.glob("*.png"):
        if (SHOTS / page.name).exists():
            keep(page.stem)
            print(f"{page.name} is written")
