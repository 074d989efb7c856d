"""A Slurm cluster of one node with two processors on this machine: its key, ports and files are its own."""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sshd import free_port

WHERE = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
MISSING = [name for name in ("munged", "slurmctld", "slurmd", "srun") if shutil.which(name, path=WHERE) is None]
SECONDS = 20.0
CONFIG = """\
ClusterName=tests
SlurmctldHost={node}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
NodeName={node} NodeAddr=127.0.0.1 CPUs=2
PartitionName=main Nodes={node} Default=YES
"""


class NoCluster(Exception):
    """The cluster does not come up; this says why."""


@dataclass
class Slurm:
    """A cluster that runs; clients find it by `SLURM_CONF`, which is `config`."""

    folder: Path
    node: str
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])

    @property
    def config(self) -> str:
        return str(self.folder / "slurm.conf")

    def ask(self, *command: str) -> str:
        """What a program of Slurm's prints."""
        env = {**os.environ, "SLURM_CONF": self.config}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60).stdout.strip()

    def jobs(self) -> list[str]:
        """The states of all jobs."""
        return self.ask("squeue", "--noheader", "--format=%T").split()

    def jobs_at_last(self, expected: list[str]) -> list[str]:
        """The same, once they are as expected, or do not become so."""
        end = time.monotonic() + SECONDS
        while (found := self.jobs()) != expected and time.monotonic() < end:
            time.sleep(0.05)
        return found

    @contextmanager
    def full(self) -> Iterator[None]:
        """While the block runs, no job is started."""
        self.ask("scontrol", "update", f"nodename={self.node}", "state=drain", "reason=test")
        try:
            yield
        finally:
            self.ask("scontrol", "update", f"nodename={self.node}", "state=resume")

    def stop(self) -> None:
        """End every job, and the cluster."""
        self.ask("scancel", "--user", getpass.getuser())
        self.jobs_at_last([])
        self.end_processes()

    def end_processes(self) -> None:
        """End the programs that the cluster consists of."""
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()


def start_slurm(folder: Path) -> Slurm:
    """A cluster that takes jobs. Raises NoCluster."""
    node = socket.gethostname().partition(".")[0]
    cluster = Slurm(folder, node)
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))
    for name in ("state", "spool"):
        (folder / name).mkdir()
    ports = (free_port(), free_port())
    (folder / "slurm.conf").write_text(CONFIG.format(folder=folder, node=node, user=getpass.getuser(), ports=ports))
    files = [f"--{kind}-file={folder}/munge.{kind}" for kind in ("key", "pid", "seed", "log")]
    try:
        _start(cluster, "munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *files)
        _wait(cluster, "munged does not answer", lambda: (folder / "munge.socket").exists())
        _start(cluster, "slurmctld", "-D", "-f", cluster.config)
        _start(cluster, "slurmd", "-D", "-f", cluster.config)
        _wait(cluster, "the node does not come up", lambda: cluster.ask("sinfo", "-h", "-o", "%T") == "idle")
    except NoCluster:
        cluster.end_processes()
        raise
    return cluster


def _start(cluster: Slurm, program: str, *arguments: str) -> None:
    path = shutil.which(program, path=WHERE)
    assert path is not None
    with (cluster.folder / f"{program}.log").open("wb") as log:
        command = [path, *arguments]
        cluster.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))


def _wait(cluster: Slurm, trouble: str, ready: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not ready():
        ended = [process.args for process in cluster.processes if process.poll() is not None]
        if ended or time.monotonic() > end:
            logs = [f"{log.name}: {log.read_text('utf-8', 'replace')[-500:]}" for log in cluster.folder.glob("*.log")]
            raise NoCluster("\n".join([trouble, *logs]))
        time.sleep(0.05)
