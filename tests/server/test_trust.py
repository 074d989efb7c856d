"""Nothing of a workspace runs before its user has trusted it: no code, no `.pth` file, no interpreter."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types
from pytest_lsp import LanguageClient
from sessions import FULL, Editor, editor

from fx_lsp.cli import main
from fx_lsp.server.requests import trust
from fx_lsp.server.session import Session
from fx_lsp.server.settings import Settings, without_more_trust

SERVE = [sys.executable, "-m", "fx_lsp", "serve"]
PACKAGE = str(Path(trust.__file__).parents[3])
SOURCE = """\
import torch


def double(x):
    # fx: x=f32[4]
    return torch.relu(x) * 2
"""
MARKING = """\
import torch

open({marker!r}, "a").write("module level\\n")


def double(x):
    # fx: x=f32[4]
    return torch.relu(x) * 2
"""
PYTHON = """\
#!/bin/sh
echo "interpreter $0 $*" >> {marker}
exit 3
"""


class User(Editor):
    """An editor whose user answers questions with `answers`, one after the other; None dismisses a question."""

    def __init__(self, client: LanguageClient, folder: Path) -> None:
        super().__init__(client, folder)
        self.answers: list[str | None] = []
        self.questions: list[str] = []
        self.choices: list[str] = []
        self.pending = 0
        self.leaving = False

        @client.feature(types.WINDOW_SHOW_MESSAGE_REQUEST)
        async def ask(params: types.ShowMessageRequestParams) -> types.MessageActionItem | None:
            self.questions.append(params.message)
            self.choices = [action.title for action in params.actions or ()]
            self.pending += 1
            while not self.answers and not self.leaving:
                await asyncio.sleep(0.01)
            self.pending -= 1
            answer = self.answers.pop(0) if self.answers else None
            return None if answer is None else types.MessageActionItem(answer)

    def told(self) -> list[str]:
        return [message.message for message in self.client.messages]

    def status(self) -> str:
        return self.statuses[-1].message if self.statuses else ""

    async def asked(self, times: int = 1) -> str:
        await self.until(lambda: len(self.questions) == times)
        return self.questions[-1]

    async def refused(self) -> None:
        """Wait until the server says that nothing is traced."""
        await self.until(lambda: "not trusted" in self.status() and self.statuses[-1].quiescent)


class Place:
    """Folders of strangers, which have an interpreter that leaves a trace when it runs, and a user's settings."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.marker = base / "ran.txt"
        self.config = base / "config"
        self.store = self.config / "fx-lsp" / "trusted.json"

    def workspace(self, name: str = "stranger") -> Path:
        folder = self.base / name
        python = folder / ".venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(PYTHON.format(marker=self.marker))
        python.chmod(0o755)
        (folder / "model.py").write_text(MARKING.format(marker=str(self.marker)))
        return folder

    def ran(self) -> str:
        return self.marker.read_text() if self.marker.exists() else ""

    @asynccontextmanager
    async def user(
        self,
        folder: Path,
        *more: str,
        options: Any = None,
        configuration: Any = None,
        folders: Sequence[str] = (".",),
    ) -> AsyncIterator[User]:
        env = {"XDG_CONFIG_HOME": str(self.config), "XDG_CACHE_HOME": str(self.base / "cache")}
        env |= {"PYTHONPATH": PACKAGE, "VIRTUAL_ENV": "", "CONDA_PREFIX": ""}
        command = [*SERVE, *more]
        async with editor(folder, FULL, options, configuration, command, env, folders, User) as user:
            yield user
            user.leaving = True
            await user.until(lambda: user.pending == 0)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def opened(user: User, name: str = "model.py") -> str:
    return user.open(name, (user.folder / name).read_text())


async def test_nothing_runs_before_the_answer_and_the_question_says_what_will(place: Place):
    folder = place.workspace()
    async with place.user(folder) as user:
        uri = opened(user)
        question = await user.asked()
        assert str(folder) in question and str(folder / ".venv" / "bin" / "python") in question
        assert user.choices == ["Trust", "Not now", "Never"]
        await user.refused()
        assert [f.name for f in await functions(user, uri)] == ["double"], "texts are read"
        assert any("not trusted" in problem.message for problem in await user.problems(uri))
        assert place.ran() == ""
        user.answers.append("Trust")
        await user.until(place.ran)
        assert place.ran().startswith(f"interpreter {folder / '.venv/bin/python'} -B -c")
        assert json.loads(place.store.read_text())["folders"] == {str(folder.resolve()): "trusted"}
        assert place.store.stat().st_mode & 0o777 == 0o600


LACKING = """
import sys
from fx_lsp.sandbox import confinement, landlock, macos, seccomp
platform, version, architecture = sys.argv[1].split()
sys.platform, landlock.version = platform, lambda: int(version)
landlock.restrict = confinement._limit = lambda *_: None
seccomp.forbid_network_and_privileges = lambda: None
seccomp.supported = lambda: architecture == "x86_64"
print(*confinement.begin(sys.argv[2], confinement.Allowance()), end="")
"""
SYSTEMS = {
    "linux 7 x86_64": (),
    "linux 5 x86_64": ("end your programs",),
    "linux 2 x86_64": ("empty your files", "end your programs"),
    "linux 0 x86_64": ("read, change and remove your files", "end your programs"),
    "linux 7 riscv64": ("use the network and start programs",),
    "darwin 0 arm64": ("change your files and use the network", "read your files and end your programs"),
    "win32 0 x86_64": ("runs with your rights",),
}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems are played here")
@pytest.mark.parametrize(("system", "harms"), SYSTEMS.items(), ids=SYSTEMS)
def test_the_question_has_a_sentence_for_what_nothing_stops(system: str, harms: Sequence[str], tmp_path: Path):
    program = [sys.executable, "-c", LACKING, system, str(tmp_path)]
    said = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    session = Session(encoding="utf-16")
    question = trust._question(session, "/f", (said,) if said else ())
    assert [harm in question for harm in harms] == [True] * len(harms)
    assert ("It writes only temporary files" in question) == (not harms)
    session.settings = Settings(limits_sandbox=False)
    assert "It may do all that you may" in trust._question(session, "/f", ())


async def test_comments_are_checked_and_completed_before_the_answer(place: Place):
    folder = place.workspace()
    async with place.user(folder) as user:
        uri = user.open("model.py", "import torch\n\n\ndef f(x):\n    # fx: x=f99[4]\n    return torch.relu(x)\n")
        await user.refused()
        await user.until(lambda: any("unknown dtype" in p.message for p in user.client.diagnostics.get(uri, ())))
        params = types.CompletionParams(types.TextDocumentIdentifier(uri), types.Position(4, len("    # fx: x=")))
        assert await user.client.text_document_completion_async(params)
    assert place.ran() == ""


async def test_a_file_without_tensor_code_asks_nothing(place: Place):
    async with place.user(place.workspace()) as user:
        uri = user.open("plain.py", "def f(x):\n    return x\n")
        await user.until(lambda: user.statuses and user.statuses[-1].quiescent)
        assert await user.titles(uri) == []
        assert user.questions == [] and user.status() == ""
    assert place.ran() == ""


@pytest.mark.parametrize("answer", ["Trust", "Never"])
async def test_an_answer_is_remembered_after_a_restart(place: Place, answer: str):
    folder = place.workspace()
    async with place.user(folder) as user:
        user.answers.append(answer)
        opened(user)
        await user.asked()
        await user.until(place.store.exists)
    place.marker.unlink(missing_ok=True)
    async with place.user(folder) as user:
        opened(user)
        if answer == "Trust":
            await user.until(place.ran)
        else:
            await user.refused()
            assert place.ran() == ""
        assert user.questions == []


async def test_not_now_asks_again_at_the_next_start(place: Place):
    folder = place.workspace()
    for _ in range(2):
        async with place.user(folder) as user:
            user.answers.append("Not now")
            opened(user)
            await user.asked()
            await user.refused()
            user.change(user.open("model.py", SOURCE), 2, SOURCE + "\n\ndef g(x):\n    return torch.exp(x)\n")
            await user.refused()
            assert len(user.questions) == 1, "once for each start"
    assert place.ran() == "" and not place.store.exists()


async def test_a_question_that_is_dismissed_is_a_no_and_a_line_says_how_to_trust(place: Place):
    folder = place.workspace("my folder")
    async with place.user(folder) as user:
        user.answers.append(None)
        opened(user)
        await user.until(lambda: any(f"fx-lsp trust '{folder}'" in m for m in user.told()))
        await user.refused()
        assert [m for m in user.told() if "not trusted" in m] == [user.told()[-1]], "one line"
    assert place.ran() == ""


async def test_a_client_that_cannot_ask_says_how_to_trust_and_the_command_is_the_answer(place: Place):
    folder = place.workspace()
    env = {"XDG_CONFIG_HOME": str(place.config), "PYTHONPATH": PACKAGE, "VIRTUAL_ENV": "", "CONDA_PREFIX": ""}
    async with editor(folder, FULL, command=SERVE, env=env) as client:
        uri = client.open("model.py", (folder / "model.py").read_text())
        await client.until(lambda: any("fx-lsp trust " in m.message for m in client.client.messages))
        assert place.ran() == ""
        await client.command("fxLsp.trust", uri)
        await client.until(place.ran)


async def test_trust_is_revoked_by_a_command_and_asked_for_by_another(place: Place):
    folder = place.workspace()
    async with place.user(folder) as user:
        user.answers.append("Trust")
        uri = opened(user)
        await user.until(place.ran)
        await user.command("fxLsp.revokeTrust", uri)
        place.marker.unlink(missing_ok=True)
        await user.refused()
        user.change(uri, 2, SOURCE + "\n\ndef g(x):\n    return torch.exp(x)\n")
        await user.refused()
        assert len(user.questions) == 1 and place.ran() == ""
        assert json.loads(place.store.read_text())["folders"] == {}
        user.answers.append("Trust")
        await user.command("fxLsp.trust", uri)
        await user.asked(2)
        await user.until(place.ran)


async def test_two_folders_are_asked_about_separately(place: Place):
    place.workspace("good"), place.workspace("evil")
    async with place.user(place.base, folders=("good", "evil")) as user:
        opened(user, "good/model.py")
        assert str(place.base / "good") in await user.asked()
        user.answers.append("Trust")
        await user.until(place.ran)
        uri = opened(user, "evil/model.py")
        question = await user.asked(2)
        assert str(place.base / "evil" / ".venv") in question
        user.answers.append("Never")
        await user.until(lambda: any("not trusted" in p.message for p in user.client.diagnostics.get(uri, ())))
        await user.until(lambda: len(json.loads(place.store.read_text())["folders"]) == 2)
        assert str(place.base / "evil") not in place.ran()
    answers = json.loads(place.store.read_text())["folders"]
    assert answers == {str(place.base / "good"): "trusted", str(place.base / "evil"): "never"}


async def test_no_interpreter_comes_from_a_folder_that_is_not_trusted(place: Place):
    place.workspace("evil")
    (place.base / "good").mkdir()
    async with place.user(place.base, folders=("good", "evil")) as user:
        user.answers.append("Trust")
        uri = user.open("good/model.py", SOURCE)
        assert "evil" not in await user.asked()
        await user.until(lambda: not any("not trusted" in p.message for p in user.client.diagnostics.get(uri, ())))
    assert place.ran() == ""


async def test_a_file_outside_of_all_folders_is_asked_about_by_its_own(place: Place):
    home, other = place.workspace("home"), place.workspace("downloads")
    (other / "package").mkdir()
    (other / "package" / "__init__.py").touch()
    (other / "package" / "model.py").write_text(SOURCE)
    async with place.user(place.base, folders=("home",)) as user:
        user.open("model.py", SOURCE, uri=(other / "package" / "model.py").as_uri())
        question = await user.asked()
        assert f"trust {other}?" in question and str(home) not in question


async def test_a_folder_in_a_trusted_folder_is_trusted(place: Place):
    folder = place.workspace("code/deep")
    set_store(place, {str(place.base / "code"): "trusted"})
    async with place.user(folder) as user:
        opened(user)
        await user.until(place.ran)
        await user.command("fxLsp.revokeTrust")
        await user.refused()
    answers = json.loads(place.store.read_text())["folders"]
    assert answers == {str(place.base / "code"): "trusted", str(folder): "never"}


@pytest.mark.parametrize(("more", "options"), [(["--trust"], None), ([], {"trust": "always"})])
async def test_who_wants_no_question_gets_none(place: Place, more: list[str], options: Any):
    async with place.user(place.workspace(), *more, options=options) as user:
        opened(user)
        await user.until(place.ran)
        assert user.questions == [] and not place.store.exists()


async def test_a_setting_says_never(place: Place):
    folder = place.workspace()
    set_store(place, {str(folder): "trusted"})
    async with place.user(folder, "--trust", options={"trust": "never"}) as user:
        opened(user)
        await user.refused()
        await user.command("fxLsp.trust")
        await user.until(lambda: any("because of the setting trust" in m for m in user.told()))
        assert user.questions == [] and place.ran() == ""


@pytest.mark.parametrize("setting", [{"trust": "always"}, {"trusted": True}])
async def test_settings_that_a_workspace_may_bring_give_no_trust(place: Place, setting: dict[str, Any]):
    async with place.user(place.workspace(), configuration=setting) as user:
        opened(user)
        await user.asked()
        await user.refused()
        assert any("initializationOptions" in m for m in user.told())
    assert place.ran() == ""


async def test_the_editor_that_answers_itself_is_not_asked(place: Place):
    folder = place.workspace()
    async with place.user(folder, options={"trusted": False}, configuration={"trusted": False}) as user:
        opened(user)
        await user.refused()
        assert user.questions == [] and place.ran() == ""
        user.client.set_configuration({"fx-lsp": {"trusted": True}})
        user.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(settings={}))
        await user.until(place.ran)
        assert user.questions == [] and not place.store.exists()


async def test_an_answer_that_cannot_be_stored_is_valid_for_the_session(place: Place):
    folder = place.workspace()
    place.config.mkdir()
    (place.config / "fx-lsp").write_text("a file where the folder should be")
    async with place.user(folder) as user:
        user.answers.append("Trust")
        opened(user)
        await user.until(place.ran)
        assert any("cannot be stored" in m for m in user.told())


async def test_a_workspace_cannot_bring_the_answer_itself(place: Place):
    folder = place.workspace()
    place.config = folder / ".config"
    place.store = place.config / "fx-lsp" / "trusted.json"
    set_store(place, {str(folder): "trusted"})
    async with place.user(folder) as user:
        opened(user)
        await user.asked()
        await user.refused()
    assert place.ran() == ""


@pytest.mark.torch
async def test_pth_files_and_statements_of_modules_run_only_in_a_trusted_folder(place: Place):
    folder = place.workspace()
    environment(folder / ".venv", place.marker)
    async with place.user(folder) as user:
        uri = opened(user)
        await user.asked()
        await user.refused()
        assert place.ran() == ""
        user.answers.append("Trust")
        await user.until(lambda: "pth" in place.ran())
        while not any("ops" in title for title in await user.titles(uri)):
            await asyncio.sleep(0.05)
        assert children(user)
        await user.command("fxLsp.revokeTrust", uri)
        assert not children(user) or sys.platform != "linux", "every process has ended"
        await user.refused()
        assert not any("ops" in title for title in await user.titles(uri)), "answers are no longer shown"


def test_the_command_line_trusts_lists_and_revokes(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place.config))
    folder = place.workspace()
    link = place.base / "link"
    link.symlink_to(folder)
    assert main(["trust"]) == 0
    assert capsys.readouterr().out == "You have trusted no folder and no host.\n"
    assert main(["trust", str(link)]) == 0
    assert capsys.readouterr().out == f"{folder} is trusted\n"
    assert main(["trust"]) == 0
    assert capsys.readouterr().out == f"trusted  {folder}\n"
    assert main(["trust", "--revoke", str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder} is not trusted\n"
    assert main(["trust", str(place.base / "missing")]) == 2
    assert main(["trust", "--revoke"]) == 2


def test_a_file_that_others_may_write_gives_no_trust(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place.config))
    folder = place.workspace()
    set_store(place, {str(folder): "trusted"})
    session = Session(settings=Settings())
    assert session.trust_of_folder(str(folder)) is True
    place.store.chmod(0o666)
    assert session.trust_of_folder(str(folder)) is None
    place.store.chmod(0o600)
    for text in ("[]", "{", '{"folders": []}', '{"folders": {"' + str(folder) + '": true}}'):
        place.store.write_text(text)
        assert session.trust_of_folder(str(folder)) is None


def test_the_question_says_what_is_not_confined_and_has_one_line(place: Place):
    folder = place.base / "a\nb"
    folder.mkdir()
    question = trust._question(Session(), str(folder), ("Programs are not stopped.",))
    assert "a?b" in question and "\n" not in question
    assert "Programs are not stopped. Until" in question


def children(user: User) -> str:
    """The ids of the processes that the server has started (Linux)."""
    assert user.client._server is not None
    pid = user.client._server.pid
    return Path(f"/proc/{pid}/task/{pid}/children").read_text() if sys.platform == "linux" else "unknown"


async def functions(user: User, uri: str) -> list[Any]:
    answer = await user.client.protocol.send_request_async("fxLsp/functions", {"uri": uri})
    return list(answer.functions)


def set_store(place: Place, folders: dict[str, str]) -> None:
    place.store.parent.mkdir(parents=True)
    place.store.write_text(json.dumps({"folders": folders}))
    place.store.chmod(0o600)


def environment(venv: Path, marker: Path) -> None:
    """A virtual environment with the torch of this Python, and a `.pth` file that leaves a trace."""
    python = venv / "bin" / "python"
    python.unlink()
    python.symlink_to(sys.executable)
    (venv / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix) / 'bin'}\n")
    site = venv / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    site.mkdir(parents=True)
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "planted.pth").write_text(f"import pathlib; open({str(marker)!r}, 'a').write('pth\\n')\n{packages}\n")


def test_a_workspace_cannot_loosen_the_confinement():
    first = Settings(limits_read=("/data",), limits_programs=("git",))
    later = Settings(limits_read=("/data", "/"), limits_programs=("sh",), limits_sandbox=False)
    allowed = without_more_trust(later, first)
    assert (allowed.limits_read, allowed.limits_programs, allowed.limits_sandbox) == (("/data",), (), True)
    of_vscode = Settings(trusted=True)
    assert without_more_trust(later, of_vscode).limits_read == ("/data", "/")
