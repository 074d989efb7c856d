"""The page of licenses names every package that is needed or bundled, with the license that the package declares."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("packaging")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import licenses

ROOT = licenses.ROOT
PINNED = dict(re.findall(r"^([\w-]+)==([\w.]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))


def rows() -> dict[str, str]:
    """The licenses on the page, by package."""
    return dict(re.findall(r"^\| (\S+) \| (.+?) \| .* \|$", licenses.PAGE.read_text(encoding="utf-8"), re.MULTILINE))


def test_npm_packages_have_their_licenses():
    packages = licenses.npm_packages()
    assert len(packages) > 20
    assert {name: rows().get(name) for name in packages} == packages


def test_python_packages_have_their_licenses():
    names = {*licenses.python_packages(), *licenses.OPTIONAL}
    assert {"pygls", "attrs", "torch"} <= names <= {*rows()}
    installed = {name: licenses.license_of(name) for name in names if is_as_pinned(name)}
    assert {name: rows()[name] for name in installed} == installed


def is_as_pinned(name: str) -> bool:
    """Whether a package is installed in the version of `constraints.txt`, where it is named there."""
    try:
        version = licenses.metadata(name)["Version"].partition("+")[0]
    except licenses.PackageNotFoundError:
        return False
    return PINNED.get(name, version) == version


def test_no_package_forbids_its_use():
    strict = [name for name, license_ in rows().items() if re.search(r"GPL|SSPL|BUSL|UNLICENSED|not ", license_)]
    assert strict == []
