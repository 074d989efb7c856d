"""VS Code, built of npm packages, in a real browser: where it is, how it is started, how scenarios are run in it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import pytest
from filelock import FileLock
from vscode.install import install
from vscode.pictures import SHOTS
from warm import warm_python

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent.parent
EXTENSION = REPOSITORY / "vscode-extension"
PLAYWRIGHT = EXTENSION / "node_modules" / "playwright-core"
NONE: Mapping[str, Any] = MappingProxyType({})
SCENARIO_SECONDS = 540
START_SECONDS = 60
QUIET = {
    "workbench.startupEditor": "none",
    "workbench.tips.enabled": False,
    "workbench.reduceMotion": "on",
    "editor.cursorBlinking": "solid",
    "terminal.integrated.gpuAcceleration": "off",
    "telemetry.telemetryLevel": "off",
    "extensions.autoUpdate": False,
    "extensions.ignoreRecommendations": True,
    "update.mode": "none",
    "chat.disableAIFeatures": True,
    "git.enabled": False,
    "files.autoSave": "off",
    "editor.minimap.enabled": False,
    "editor.stickyScroll.enabled": False,
    "editor.occurrencesHighlight": "off",
    "editor.inlayHints.maximumLength": 0,
    "breadcrumbs.enabled": False,
    "diffEditor.useInlineViewWhenSpaceIsLimited": False,
    "security.workspace.trust.enabled": False,
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "workbench.colorTheme": "Default Dark Modern",
}


@dataclass(frozen=True)
class Tools:
    """What has to be installed. `node` is the one that VS Code in `code` brings; scripts run with it, too."""

    chromium: str
    node: Path
    code: Path
    vsix: Path


@dataclass(frozen=True)
class Code:
    """A running VS Code and a running browser. `settings` are those of all scenarios, `python` is their interpreter."""

    tools: Tools
    url: str
    browser: str
    run_folder: Path
    python: str
    settings: Mapping[str, Any]

    @property
    def hosts(self) -> Path:
        """The file of the user's GPU hosts, which is not there at first."""
        return self.run_folder / "config" / "fx-lsp" / "hosts.toml"

    def play(
        self, script: str, folder: Path, file: Path | None = None, changes: Mapping[str, Any] = NONE, **extra: str
    ) -> dict[str, Any]:
        """Runs a scenario on a folder, in a window of its own; returns what it found, or fails with what went wrong.

        `changes` are to the settings, None to have none.
        """
        settings = {key: value for key, value in {**self.settings, **changes}.items() if value is not None}
        for place in ("User", "Machine"):  # settings of a machine count in the latter alone
            (self.run_folder / "user-data" / place / "settings.json").write_text(json.dumps(settings))
        with tempfile.TemporaryDirectory() as scratch:
            result = Path(scratch) / "result.json"
            env = {
                **os.environ,
                "FX_BROWSER": self.browser,
                "FX_PLAYWRIGHT": str(PLAYWRIGHT),
                "FX_RESULT": str(result),
                "FX_SHOTS": str(SHOTS),
                "FX_URL": self.url,
                "FX_FOLDER": str(folder),
                "FX_FILE": str(file or ""),
                **extra,
            }
            command = [str(self.tools.node), str(HERE / script)]
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=SCENARIO_SECONDS)
            self.hosts.unlink(missing_ok=True)
            assert result.exists(), f"{script} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
            found = json.loads(result.read_text())
        assert not found.get("error"), f"{found['error']}\n{found.get('messages')}\n{self.log()}"
        return found

    @contextmanager
    def extended(self, *extensions: Path) -> Iterator[None]:
        """Have these extensions beside ours meanwhile. A window has those that are there when it opens."""
        _run(self.tools, self.run_folder, *(f"--install-extension={vsix}" for vsix in extensions))
        try:
            yield
        finally:
            _run(self.tools, self.run_folder, *(f"--uninstall-extension={vsix.stem}" for vsix in extensions))

    def log(self) -> str:
        """The ends of what the extension host and the server of the last window wrote."""
        logs = sorted(
            self.run_folder.glob("user-data/logs/*/exthost*/**/*fx-lsp*.log"), key=lambda log: log.stat().st_mtime
        )
        return "\n".join(log.read_text(errors="replace")[-3000:] for log in logs[-2:])


def tools() -> Tools:
    """Everything that is needed, installed where it is missing; a skipped test where it cannot be."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    npm = shutil.which("npm")
    if chromium is None or npm is None or shutil.which("node") is None:
        pytest.skip("Chromium, node or npm is not installed")
    if not sys.platform.startswith("linux"):
        pytest.skip("VS Code is built for the tests on Linux only")
    code = Path(os.environ.get("FX_VSCODE") or REPOSITORY / ".venv" / ".vscode")
    code.mkdir(parents=True, exist_ok=True)
    with FileLock(code / ".lock"):  # tests in other processes want the same
        node = install(code, npm)
        if node is None:
            pytest.skip("VS Code could not be installed from npm")
        vsix = Path(os.environ.get("FX_VSIX") or code / f"fx-lsp-{_digest()}.vsix")
        if not vsix.exists():
            for old in code.glob("fx-lsp-*.vsix"):
                old.unlink()
            build_extension(npm, node, vsix)
    return Tools(chromium, node, code, vsix)


def build_extension(npm: str, node: Path, vsix: Path) -> None:
    """The extension as it would be installed. Its tools need a newer node than some systems have."""
    env = {**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ['PATH']}"}
    steps: list[list[str]] = [] if (EXTENSION / "node_modules").is_dir() else [[npm, "ci"]]
    steps += [[npm, "run", "check"], [npm, "run", "build"], [sys.executable, "scripts/bundle.py"]]
    for step in (*steps, [npm, "run", "package", "--", "--out", str(vsix)]):
        done = subprocess.run(step, cwd=EXTENSION, env=env, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(step)}\n{done.stdout}\n{done.stderr}"


def _digest() -> str:
    """A hash of what the extension is made of."""
    found = hashlib.sha256()
    made = {"node_modules", "dist", "server", "LICENSE", "CHANGELOG.md", "__pycache__"}
    roots = (EXTENSION, REPOSITORY / "fx_lsp", REPOSITORY / "pyproject.toml", REPOSITORY / "constraints.txt")
    for root in roots:
        for path in sorted([root, *root.rglob("*")]):
            if path.is_file() and path.suffix != ".vsix" and made.isdisjoint(path.relative_to(REPOSITORY).parts):
                found.update(f"{path.relative_to(REPOSITORY)}\0".encode() + path.read_bytes())
    return found.hexdigest()[:16]


def extension(folder: Path, publisher: str, name: str, script: str) -> Path:
    """An extension of one script, packed."""
    identity = f'Id="{name}" Version="1.0.0" Publisher="{publisher}" Language="en-US"'
    asset = '<Asset Type="Microsoft.VisualStudio.Code.Manifest" Path="extension/package.json"/>'
    vsix = folder / f"{publisher}.{name}.vsix"
    with zipfile.ZipFile(vsix, "w") as packed:
        manifest = f"<Metadata><Identity {identity}/></Metadata><Assets>{asset}</Assets>"
        schema = "http://schemas.microsoft.com/developer/vsx-schema/2011"
        packed.writestr(
            "extension.vsixmanifest", f'<PackageManifest Version="2.0.0" xmlns="{schema}">{manifest}</PackageManifest>'
        )
        about = {
            "publisher": publisher,
            "name": name,
            "version": "1.0.0",
            "main": "./main.js",
            "engines": {"vscode": "^1.95.0"},
        }
        packed.writestr("extension/package.json", json.dumps({**about, "activationEvents": ["onLanguage:python"]}))
        packed.writestr("extension/main.js", script)
    return vsix


@contextmanager
def running(made: Tools, folder: Path, settings: Mapping[str, Any]) -> Iterator[Code]:
    """VS Code with our extension and a profile of its own in `folder`, and a browser."""
    for place in ("User", "Machine"):
        (folder / "user-data" / place).mkdir(parents=True)
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    (folder / "config.yaml").write_text(f"bind-addr: 127.0.0.1:{port}\nauth: none\ncert: false\n")
    flags = ["--auth", "none", "--disable-telemetry", "--disable-update-check", "--disable-getting-started-override"]
    browser = {**os.environ, "FX_CHROMIUM": made.chromium, "FX_PLAYWRIGHT": str(PLAYWRIGHT)}
    _run(made, folder, "--install-extension", str(made.vsix))
    (server,) = (folder / "extensions").glob("fx-lsp.fx-lsp-*/server")
    python = warm_python(server)
    with ExitStack() as stack:
        log = stack.enter_context((folder / "server.log").open("w"))
        chromium = stack.enter_context(
            _process([str(made.node), str(HERE / "browser.mjs")], browser, subprocess.PIPE, log)
        )
        command = [*_command(made, folder), "--bind-addr", f"127.0.0.1:{port}", *flags, "--disable-proxy"]
        assert chromium.stdout is not None
        address = chromium.stdout.readline().decode().strip()
        code = Code(made, url, address, folder, python, {**QUIET, "fx-lsp.interpreter": python, **settings})
        stack.enter_context(_process(command, _environment(made, folder), log, log))
        _wait_for(f"{url}/healthz", folder / "server.log")
        yield code


def _command(made: Tools, folder: Path) -> list[str]:
    """VS Code's program, with its profile in `folder`."""
    entry = made.code / "node_modules" / "code-server" / "out" / "node" / "entry.js"
    places = ["--user-data-dir", str(folder / "user-data"), "--extensions-dir", str(folder / "extensions")]
    return [str(made.node), str(entry), "--config", str(folder / "config.yaml"), *places]


def _environment(made: Tools, folder: Path) -> dict[str, str]:
    env = {
        **os.environ,
        "PATH": os.pathsep.join([str(made.node.parent), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_DATA_HOME": str(folder / "data"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "EXTENSIONS_GALLERY": '{"serviceUrl":""}',
    }
    env.pop("VIRTUAL_ENV", None)
    return env


def _run(made: Tools, folder: Path, *words: str) -> None:
    """Have VS Code's program do something and end."""
    command, env = [*_command(made, folder), *words], _environment(made, folder)
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def _process(command: list[str], env: dict[str, str], out: Any, log: IO[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended with all that it started."""
    process = subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=log, start_new_session=True
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def _wait_for(url: str, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"VS Code did not answer\n{log.read_text(errors='replace')[-3000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
