"""A Slurm cluster of two nodes on this machine: real slurmctld and slurmd, each node in Linux namespaces of its own.

A node has its own network address, hostname, hosts file and process numbers. All that runs in it ends with the first
process of its namespaces, and that one ends with the test's process, whatever ends it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.front_door import until

PROGRAMS = ("slurmctld", "slurmd", "munged", "unshare", "nsenter", "setpriv", "ip", "hostname", "mount")
NODES = {"gtest1": "10.213.77.1", "gtest2": "10.213.77.2"}
CHIEF = "gtest1"
NAMESPACES = ("--fork", "--kill-child", "--pid", "--mount-proc", "--net", "--uts", "--ipc", "--mount")
FREEZER = Path("/sys/fs/cgroup/freezer")
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={chief}({address})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/%n
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/{tracking}
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
PropagateResourceLimits=NONE
MailProg=/bin/true
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
ReturnToService=2
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


ENDED = ("CANCELLED", "COMPLETED", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT")
LAST_LINES = 25  # of a log, in a report
POLL_SECONDS = 0.5  # each look starts three programs
# slurmd refuses a job whose start is not later, in whole seconds, than the end of the same job before: "Job credential
# revoked". Therefore Slurm itself waits until the lifetime of a credential is over (AuthInfo's cred_expire), 2 minutes.
START = "now+2seconds"


def missing() -> str:
    """Why no cluster can be made here; empty if it can."""
    if os.geteuid() != 0:
        return "a Slurm cluster in namespaces needs root"
    if absent := [name for name in PROGRAMS if shutil.which(name) is None]:
        return f"not installed: {', '.join(absent)}"
    tried = subprocess.run(["unshare", *NAMESPACES, "true"], capture_output=True, text=True, check=False)
    return f"no namespaces here: {tried.stderr.strip()}" if tried.returncode else ""


def has_freezer() -> bool:
    """Whether Slurm can hold the processes of a step in a control group; with version 2 it needs systemd for that."""
    return os.access(FREEZER, os.W_OK)


@dataclass(frozen=True)
class Slurm:
    """A running cluster; `folder` holds its configuration, its logs and the output of its jobs."""

    folder: Path
    nodes: dict[str, int]  # for each node the first process of its namespaces

    def run(self, *words: str, node: str = CHIEF) -> str:
        """What a command answers on a node."""
        there = ["nsenter", f"--target={self.nodes[node]}", "--all", "--", *words]
        variables = os.environ | {"SLURM_CONF": str(self.folder / "slurm.conf")}
        done = subprocess.run(there, capture_output=True, text=True, timeout=60, env=variables, check=False)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout.strip()

    def submit(self, name: str, script: str, *options: str) -> str:
        """Submit a batch script; returns the number of the job."""
        file = self.folder / f"{name}.sh"
        file.write_text(script if script.startswith("#!") else f"#!/bin/bash\n{script}")
        output = ("--open-mode=append", f"--output={self.folder}/{name}.out")
        return self.run("sbatch", "--parsable", *output, f"--job-name={name}", *options, str(file))

    def job(self, number: str) -> dict[str, str]:
        """What Slurm knows of a job, by the names of `scontrol show job`."""
        return dict(re.findall(r"(\w+)=(\S*)", self.run("scontrol", "show", "job", number)))

    def state(self, number: str) -> str:
        return self.job(number)["JobState"]

    def until(self, number: str, condition: Callable[[], Any], seconds: float = 120) -> Any:
        """Wait for what a job brings about; fails with all that Slurm knows, and at once if the job has ended."""
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            state = self.state(number)
            if state in ENDED and (value := condition()):
                break
            assert state not in ENDED, f"job {number} has ended: {state}\n{self.report()}"
            assert time.monotonic() < deadline, f"job {number}: not within {seconds:g} s\n{self.report()}"
            time.sleep(POLL_SECONDS)
        return value

    def until_ended(self, number: str, state: str) -> None:
        """Wait for the end of a job, which is to be in this state then."""
        self.until(number, lambda: self.state(number) == state, 60)

    def start_again(self, number: str, restarts: int, limit: str = "") -> None:
        """Wait until a job is requeued for this time, and start it without Slurm's delay, perhaps with a new limit."""
        self.until(number, lambda: self.job(number)["Restarts"] == str(restarts))
        self.until(number, lambda: self.job(number)["Reason"] == "BeginTime")
        more = [f"TimeLimit={limit}"] if limit else []
        self.run("scontrol", "update", f"JobId={number}", f"StartTime={START}", *more)

    def report(self) -> str:
        """What Slurm knows of its nodes and jobs, and the ends of its logs and of the jobs' output."""
        parts = [self.run("scontrol", "show", what) for what in ("nodes", "jobs", "steps")]
        for file in (*sorted(self.folder.glob("*.log")), *sorted(self.folder.glob("*.out"))):
            lines = file.read_text(errors="replace").splitlines()[-LAST_LINES:]
            parts.append("\n".join([f"--- {file.name}", *lines]))
        return "\n".join(parts)

    def output(self, name: str) -> str:
        return (self.folder / f"{name}.out").read_text(errors="replace")


@contextlib.contextmanager
def cluster(folder: Path, tracking: str) -> Iterator[Slurm]:
    """A cluster that follows the processes of its jobs by `tracking`, which is linuxproc or cgroup."""
    with contextlib.ExitStack() as ends:
        if tracking == "cgroup":
            _remove_groups()  # of a test that was killed
            ends.callback(_remove_groups)
        slurm = Slurm(folder, {name: ends.enter_context(_node(folder, name)) for name in NODES})
        _connect(slurm)
        _configure(folder, tracking)
        files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "seed-file": "seed", "log-file": "log"}
        slurm.run("munged", "--force", *(f"--{name}={folder}/munge.{end}" for name, end in files.items()))
        slurm.run("slurmctld")
        for name in NODES:
            slurm.run("slurmd", "-N", name, node=name)
        until(lambda: slurm.run("sinfo", "--noheader", "--format=%t %D") == "idle 2", 60)
        yield slurm


@contextlib.contextmanager
def _node(folder: Path, name: str) -> Iterator[int]:
    """The namespaces of a node; gives their first process, which collects every process that loses its parent."""
    hosts, ready = folder / "hosts", folder / f"{name}.ready"
    hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{address} {node}\n" for node, address in NODES.items()))
    first = "exec env --ignore-signal=CHLD sleep infinity"  # the kernel collects the children of such a process
    script = f"hostname {name} && mount --bind {hosts} /etc/hosts && touch {ready} && {first}"
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", *NAMESPACES, "sh", "-c", script]
    with (folder / f"{name}.messages").open("w") as messages:
        holder = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=messages)
    try:
        until(ready.exists, 30)
        (pid,) = map(int, Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split())
        yield pid
        os.kill(pid, signal.SIGKILL)  # `unshare` ends after it
        holder.wait(30)
    finally:
        holder.kill()
        holder.wait()


def _connect(slurm: Slurm) -> None:
    """Give the nodes a network between them alone."""
    first, second = slurm.nodes.values()
    ends = ["name", "eth0", "netns", str(first), "type", "veth", "peer", "name", "eth0", "netns", str(second)]
    subprocess.run(["ip", "link", "add", *ends], check=True)
    for name, address in NODES.items():
        slurm.run("ip", "address", "add", f"{address}/24", "dev", "eth0", node=name)
        for device in ("eth0", "lo"):
            slurm.run("ip", "link", "set", device, "up", node=name)


def _configure(folder: Path, tracking: str) -> None:
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    for name in ("state", *NODES):
        (folder / name).mkdir()
    nodes = "\n".join(f"NodeName={name} NodeAddr={address} CPUs=16 State=UNKNOWN" for name, address in NODES.items())
    values = {"chief": CHIEF, "address": NODES[CHIEF], "folder": folder, "tracking": tracking, "nodes": nodes}
    (folder / "slurm.conf").write_text(CONFIGURATION.format(**values))
    (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")


def _remove_groups() -> None:
    """Remove the control groups of these nodes; the processes in them were killed, and may take a moment to end."""
    for group in FREEZER.glob("slurm_gtest*"):
        for folder, _, _ in os.walk(group, topdown=False):
            until(partial(_is_removed, Path(folder)), 10)


def _is_removed(group: Path) -> bool:
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()
