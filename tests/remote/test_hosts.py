"""hosts.toml: what it says, what is wrong with it and where, and who may have written it."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from fx_lsp.measured import Rival
from fx_lsp.tracing.remote.hosts import Cluster, Host, Hosts, Pool, hosts_path, parse_hosts, read_hosts
from fx_lsp.tracing.remote.trust import is_trusted, trust
from fx_lsp.tracing.trust import trust_path

pytest_plugins = ["box_fixtures"]
pytestmark = pytest.mark.usefixtures("own_settings")

FILE = """\
[hosts.h200]
ssh = "gpu-box"
python = "~/venv/bin/python"
limit = 900
paths = ["~/project"]
[hosts.h200.rivals]
everywhere = "rivals.all:f"
rms_norm.liger = "liger_kernel.ops.rms_norm:f"
[hosts.slurm]
command = "srun --gres=gpu:1 python3"
[pools.lab]
hosts = ["h200", "slurm", "local"]
[ray.cluster]
address = "auto"
"""


def problems(text: str) -> list[str]:
    return parse_hosts(textwrap.dedent(text))[1]


def written(text: str) -> Path:
    path = hosts_path()
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_places():
    places, wrong = parse_hosts(FILE)
    h200 = places["h200"]
    assert isinstance(h200, Host)
    assert (h200.reached, h200.python, h200.limit) == ("ssh gpu-box", "~/venv/bin/python", 900)
    assert h200.rivals_of("rms_norm") == (
        Rival("everywhere", "rivals.all:f"),
        Rival("liger", "liger_kernel.ops.rms_norm:f"),
    )
    assert h200.rivals_of("softmax") == (Rival("everywhere", "rivals.all:f"),)
    assert places["slurm"] == Host("slurm", command="srun --gres=gpu:1 python3")
    assert places["lab"] == Pool("lab", ("h200", "slurm", "local"))
    assert places["cluster"] == Cluster("cluster", "auto")
    assert wrong == []


def test_this_machine_is_there_without_a_file():
    assert read_hosts() == Hosts(str(hosts_path()), {"local": Host("local", local=True)})


def test_problems_have_lines():
    assert problems("[hosts.a\nssh = 1") == snapshot([":1: expected ']' at the end of a table declaration"])
    assert problems(
        """\
        [hosts.a]
        ssh = "a"
        command = "python3"
        [hosts.b]
        ssh = "b"
        port = 22
        [hosts.c]
        limit = 3
        [hosts.d]
        command = "ssh d python3"
        [hosts.e]
        command = "srun 'python3"
        [hosts.f]
        ssh = "f"
        limit = "long"
        [hosts.g]
        ssh = ""
        [hosts.h]
        command = "srun python3"
        python = "python3"
        [hosts.i]
        local = true
        rivals = { liger = "liger" }
        [hosts.j]
        ssh = "j"
        paths = "~/project"
        [pools.p]
        hosts = [
            "nobody",
        ]
        [pools.q]
        [ray.r]
        adress = "auto"
        [host.s]
        ssh = "s"
        """
    ) == snapshot(
        [
            ":1: host a needs one of ssh, command and local, not several",
            ":6: port is unknown here: write one of "
            "command, connect, folder, limit, local, paths, python, rivals, ssh, ssh_config",
            ":7: host c needs one of ssh, command and local",
            ':10: the remote shell of ssh would split the program: write ssh = "…" instead',
            ":12: the command cannot be split into words: No closing quotation",
            ":15: limit must be a number of seconds",
            ":16: host g needs one of ssh, command and local",
            ":20: a command ends in its Python: remove python",
            ':23: rival liger must be "package.module:function"',
            ':26: paths must be a list of folders: ["~/project"]',
            ":28: pool p has a host nobody that is not named in this file",
            ':31: pool q needs a list of hosts: hosts = ["a", "b"]',
            ":33: adress is unknown here: write one of address, limit",
            ":34: host is unknown here; use hosts, pools or ray",
        ]
    )


def test_what_is_right_in_a_wrong_file_counts():
    places, _ = parse_hosts('[hosts.a]\nssh = "a"\n[hosts.b]\nshh = "b"\n')
    assert list(places) == ["a"]


def test_a_file_that_others_may_write_is_not_read():
    path = written(FILE)
    assert "h200" in read_hosts().places
    path.chmod(0o620)
    found = read_hosts()
    assert list(found.places) == ["local"]
    assert [problem.replace(str(path), "FILE") for problem in found.problems] == snapshot(
        ["FILE is not read: other users may write it; run: chmod go-w FILE"]
    )
    path.chmod(0o600)
    path.parent.chmod(0o777)
    assert list(read_hosts().places) == ["local"]
    path.parent.chmod(0o700)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_not_read():
    path = written(FILE)
    os.chown(path, 12345, 12345)
    assert list(read_hosts().places) == ["local"]


def test_a_file_in_the_project_is_not_read(tmp_path: Path):
    path = written(FILE)
    found = read_hosts(str(tmp_path))
    assert list(found.places) == ["local"]
    assert [p.replace(str(path), "FILE").replace(str(tmp_path), "PROJECT") for p in found.problems] == snapshot(
        ["FILE is not read: it is in the project PROJECT, and a project cannot name hosts"]
    )
    assert "h200" in read_hosts(str(tmp_path / "project")).places


def test_a_yes_is_for_one_way_to_a_host():
    host = Host("h200", ssh="gpu-box")
    assert not is_trusted(host)
    trust(host)
    assert is_trusted(host)
    assert is_trusted(Host("h200", ssh="gpu-box", limit=5))
    assert not is_trusted(Host("h200", ssh="gpu-box", python="/tmp/python"))
    assert not is_trusted(Host("other", ssh="gpu-box"))
    assert trust_path().stat().st_mode & 0o777 == 0o600


def test_this_machine_needs_no_yes():
    assert is_trusted(Host("local", local=True))
    assert not is_trusted(Host("local", command="evil"))
