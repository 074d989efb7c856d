"""What a user installs: the wheel and the source distribution, in environments that have nothing else.

They are built once, the wheel from the source distribution. `FX_LSP_DIST` names a folder with others to test instead.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import NamedTuple

import pytest
from pythons import VERSIONS, python_of
from stdio import session

from fx_lsp import __version__

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.release

USER_FILE = "import torch\n\ndef f(x):\n    return torch.relu(x)\n\nf(torch.ones(3))\n"


class Artefacts(NamedTuple):
    """The files of a release."""

    sdist: Path
    wheel: Path

    def metadata(self) -> Message:
        """Return the metadata of the wheel."""
        with zipfile.ZipFile(self.wheel) as archive:
            return message_from_bytes(archive.read(f"fx_lsp-{__version__}.dist-info/METADATA"))


class Environment(NamedTuple):
    """An environment in which fx-lsp is installed, and a folder of a user."""

    scripts: Path
    folder: Path

    def variables(self) -> dict[str, str]:
        """Return the variables of a user who activated the environment."""
        base = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CONDA_PREFIX")}
        own = {f"XDG_{name}_HOME": str(self.folder / name.lower()) for name in ("CACHE", "CONFIG")}
        path = os.pathsep.join([str(self.scripts), os.environ.get("PATH", "")])
        return {**base, **own, "VIRTUAL_ENV": str(self.scripts.parent), "PATH": path}

    def fx_lsp(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command in the folder of the user."""
        command = [self.scripts / "fx-lsp", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=self.folder, env=self.variables())


@pytest.fixture(scope="session")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Artefacts:
    if not (folder := os.environ.get("FX_LSP_DIST")):
        folder = str(tmp_path_factory.mktemp("dist"))
        succeeds(sys.executable, "-m", "build", "--outdir", folder, str(ROOT))
    (sdist,), (wheel,) = Path(folder).glob("fx_lsp-*.tar.gz"), Path(folder).glob("fx_lsp-*.whl")
    return Artefacts(sdist, wheel)


@pytest.fixture(scope="session", params=VERSIONS)
def installed(
    request: pytest.FixtureRequest, artefacts: Artefacts, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    if not (python := python_of(request.param)):
        pytest.skip(f"no Python {request.param} here")
    return environment(python, artefacts.wheel, tmp_path_factory.mktemp("environment"))


def test_the_tools_of_the_index_accept_them(artefacts: Artefacts) -> None:
    succeeds(sys.executable, "-m", "twine", "check", "--strict", *map(str, artefacts))
    succeeds(sys.executable, "-m", "check_wheel_contents", str(artefacts.wheel))


def test_the_wheel_has_all_modules_and_the_pages_of_problems(artefacts: Artefacts) -> None:
    package = {path for path in (ROOT / "fx_lsp").rglob("*") if path.is_file() and path.suffix != ".pyc"}
    pages = {f"fx_lsp/problems/{path.name}" for path in (ROOT / "docs" / "problems").glob("*.md")}
    names = set(zipfile.ZipFile(artefacts.wheel).namelist())
    contents = {name for name in names if not name.startswith(f"fx_lsp-{__version__}.dist-info/")}
    assert contents == {path.relative_to(ROOT).as_posix() for path in package} | pages


def test_the_links_of_the_description_lead_to_the_files_of_the_release(artefacts: Artefacts) -> None:
    metadata = artefacts.metadata()
    home = dict(entry.split(", ") for entry in metadata.get_all("Project-URL", []))["Homepage"]
    prose = re.sub(r"```.*?```", "", str(metadata.get_payload()), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)]+)\)", prose)
    raw = home.replace("https://github.com/", "https://raw.githubusercontent.com/")
    prefixes = (f"{home}/blob/v{__version__}/", f"{raw}/v{__version__}/")
    files = [target.removeprefix(prefix) for target in targets for prefix in prefixes if target.startswith(prefix)]
    assert len(files) == len(targets) > 10
    assert [name for name in files if not (ROOT / name.partition("#")[0]).exists()] == []


def test_all_files_name_the_same_home() -> None:
    """The project moves by a change of one address, and of what this test then lists."""
    home = re.search(r'^Homepage = "(.*)"$', read("pyproject.toml"), re.MULTILINE)
    assert home is not None
    manifest = json.loads(read("vscode-extension/package.json"))
    assert manifest["repository"]["url"] == f"{home[1]}.git"
    assert manifest["homepage"] == home[1]
    assert manifest["bugs"] == {"url": f"{home[1]}/issues"}
    for name in ("pyproject.toml", "docs/how-to/ci.md"):
        owners = re.findall(r"(?:github\.com/|githubusercontent\.com/|uses: )([\w-]+/fx-lsp)\b", read(name))
        assert {*owners} == {home[1].removeprefix("https://github.com/")}


def test_the_page_on_ci_names_this_version() -> None:
    versions = re.findall(r"(?:/fx-lsp@|rev: )(\S+)", read("docs/how-to/ci.md"))
    assert versions == [f"v{__version__}"] * 2


def test_it_has_a_version_and_serves(installed: Environment) -> None:
    assert installed.fx_lsp("--version").stdout == f"fx-lsp {__version__}\n"
    command = [str(installed.scripts / "fx-lsp"), "serve"]
    answer = session(command, installed.folder / "user.py", {**installed.variables(), "PYTHONPATH": ""})
    assert answer["serverInfo"]["name"] == "fx-lsp"


def test_without_torch_it_says_what_to_install(installed: Environment) -> None:
    python = str(installed.scripts / "python")
    checked = installed.fx_lsp("check", "user.py", "--python", python)
    assert (checked.returncode, checked.stdout) == (2, "")
    assert re.fullmatch(
        r"fx-lsp: \S+ has no torch; pass the interpreter that has torch with --python\n", checked.stderr
    )
    examined = installed.fx_lsp("doctor", "--python", python)
    assert (examined.returncode, examined.stderr) == (1, "")
    said = r"✗ interpreter .* no torch \(set as `interpreter`\)\n +→ install torch into it, pass --python"
    assert re.search(said, examined.stdout)
    assert re.search(rf"✓ fx-lsp +{__version__}, on Python ", examined.stdout)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch here")
def test_the_source_distribution_installs_and_traces_with_torch(artefacts: Artefacts, tmp_path: Path) -> None:
    """torch comes from the Python that runs the tests."""
    env = environment(sys.executable, artefacts.sdist, tmp_path)
    show_site = [env.scripts / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(show_site, capture_output=True, text=True, check=True).stdout.strip())
    lent = {str(Path(name).resolve()) for name in sys.path if name.endswith("site-packages")}
    (site / "lent.pth").write_text("\n".join(sorted(lent)), encoding="utf-8")
    checked = env.fx_lsp("check", "user.py")
    assert checked.returncode == 0, checked.stderr
    assert "1 traced · 0 not · 0 problems" in checked.stdout
    assert "aten.relu.default" in env.fx_lsp("graph", "user.py::f").stdout


def test_uvx_runs_the_wheel(artefacts: Artefacts, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "uv", "tool", "run", "--python", sys.executable]
    env = {**os.environ, "UV_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [*command, "--from", str(artefacts.wheel), "fx-lsp", "--version"], capture_output=True, text=True, env=env
    )
    if re.search(r"Failed to fetch|not found in the package registry|client error", done.stderr):
        pytest.skip("uv has no package index here")
    assert (done.returncode, done.stdout) == (0, f"fx-lsp {__version__}\n"), done.stderr


def environment(python: str, artefact: Path, folder: Path) -> Environment:
    """Return a new environment with fx-lsp and what it requires."""
    home = folder / "environment"
    succeeds(python, "-m", "venv", str(home))
    scripts = home / ("Scripts" if os.name == "nt" else "bin")
    succeeds(str(scripts / "python"), "-m", "pip", "install", "--quiet", str(artefact))
    (folder / "user.py").write_text(USER_FILE, encoding="utf-8")
    return Environment(scripts, folder)


def read(name: str) -> str:
    """Return the text of a file of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def succeeds(*command: str) -> None:
    """Run a command. Raises AssertionError with its output if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
