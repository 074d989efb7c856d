"""The workflows of GitHub: they are valid, ask for few permissions, and name files and versions that exist."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from fx_lsp import __version__

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CHANGES = "# Changelog\n\n## [0.2.0] - 2030-01-31\n\n### Added\n\n- A view.\n\n## [0.1.0] - 2030-01-01\n\n- All.\n"

every_workflow = pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)


@pytest.mark.parametrize("schema", ["vendor.github-workflows", "custom.github-workflows-require-timeout"])
def test_workflows_are_valid(schema: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, WORKFLOWS)]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="no actionlint here")
def test_actionlint_accepts_the_workflows() -> None:
    checked = subprocess.run(["actionlint", *map(str, WORKFLOWS)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


@every_workflow
def test_actions_have_a_version(workflow: Path) -> None:
    used = re.findall(r"uses: (\S+)", workflow.read_text(encoding="utf-8"))
    assert used and [action for action in used if not re.search(r"@(v\d+|release/v\d+)$", action)] == []


def test_only_the_jobs_that_publish_may_write() -> None:
    writers = {
        (workflow.stem, name, permission)
        for workflow in WORKFLOWS
        for name, job in [("all jobs", content(workflow)), *jobs(workflow).items()]
        for permission, access in job.get("permissions", {}).items()
        if access != "read"
    }
    assert writers == {("release", "pypi", "id-token"), ("release", "github", "contents")}
    assert all("permissions" in content(workflow) for workflow in WORKFLOWS)


def test_nothing_is_published_before_the_artefacts_are_tested() -> None:
    release = jobs(ROOT / ".github" / "workflows" / "release.yml")
    assert required(release, "pypi") == required(release, "marketplaces") == {"build", "test", "extension"}
    assert required(release, "github") == {"build", "test", "extension", "pypi", "marketplaces"}
    assert sorted(release["test"]["strategy"]["matrix"]["system"]) == [
        "macos-latest",
        "ubuntu-latest",
        "windows-latest",
    ]


@every_workflow
def test_paths_in_commands_exist(workflow: Path) -> None:
    commands = "\n".join(step.get("run", "") for job in jobs(workflow).values() for step in job["steps"])
    paths = re.findall(r"(?<![\w/])(?:tests|fx_lsp|vscode-extension|\.ci)/[\w./-]*\w", commands)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert paths or "pytest" not in commands


def test_the_extension_is_published_by_the_tool_that_packages_it() -> None:
    manifest = json.loads((ROOT / "vscode-extension" / "package.json").read_text(encoding="utf-8"))
    version = manifest["devDependencies"]["@vscode/vsce"]
    assert f"@vscode/vsce@{version} publish" in step_of("marketplaces", "Publish to the Visual Studio Marketplace")


def test_a_tag_has_the_version_of_all_files() -> None:
    script = step_of("build", "Compare the tag with the versions of the files")
    assert bash(script, ROOT, f"v{__version__}").returncode == 0
    other = bash(script, ROOT, "v99.0")
    assert (other.returncode, other.stdout) == (1, "::error file=pyproject.toml::the version is not 99.0\n")


def test_the_notes_of_a_release_are_those_of_its_version(tmp_path: Path) -> None:
    script = step_of("build", "Take the notes from CHANGELOG.md")
    (tmp_path / "CHANGELOG.md").write_text(CHANGES, encoding="utf-8")
    assert bash(script, tmp_path, "v0.2.0").returncode == 0
    assert (tmp_path / "notes.md").read_text(encoding="utf-8").strip() == "### Added\n\n- A view."
    (tmp_path / "CHANGELOG.md").write_text(CHANGES.replace("2030-01-31", "Unreleased"), encoding="utf-8")
    undated = bash(script, tmp_path, "v0.2.0")
    assert (undated.returncode, undated.stdout) == (
        1,
        "::error file=CHANGELOG.md::there is no heading with 0.2.0 and a date\n",
    )


def content(workflow: Path) -> dict[str, Any]:
    """Return a workflow."""
    return yaml.safe_load(workflow.read_text(encoding="utf-8"))


def jobs(workflow: Path) -> dict[str, Any]:
    """Return the jobs of a workflow."""
    return content(workflow)["jobs"]


def required(release: dict[str, Any], job: str) -> set[str]:
    """Return the jobs that end before a job starts."""
    needs = release[job].get("needs", [])
    direct = [needs] if isinstance(needs, str) else needs
    return {*direct}.union(*(required(release, other) for other in direct))


def step_of(job: str, name: str) -> str:
    """Return the script of a step of a release."""
    steps = jobs(ROOT / ".github" / "workflows" / "release.yml")[job]["steps"]
    return next(step["run"] for step in steps if step.get("name") == name)


def bash(script: str, folder: Path, tag: str) -> subprocess.CompletedProcess[str]:
    """Run a script as a step with `shell: bash` of a workflow that a tag starts."""
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    env = {**os.environ, "GITHUB_REF_NAME": tag}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env)
