"""Several machines in one view: three homes behind a stand-in for ssh and, in `make nightly`, behind real sshds."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from getpass import getuser
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.terminal import needs_tmux, terminal
from tests.support import recorded
from tests.support.fakenvml import FakeNvml
from tests.support.front_door import gputui, until

NAMES = ("alpha", "beta", "gamma")
STAND_IN = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
[ -e {folder}/$2.off ] && {{ echo "ssh: connect: No route to host" >&2; exit 255; }}
[ -e {folder}/$2.sh ] || {{ echo "ssh: Could not resolve hostname $2" >&2; exit 255; }}
. {folder}/$2.sh; exec sh -c "$3"
"""
# A real sshd serves one connection, of which it gets the streams.
CLIENT = """
Host alpha beta gamma
ProxyCommand sh -c '[ ! -e {folder}/%n.off ] && exec {sshd} -i -f {folder}/%n.sshd'
User {user}
IdentityFile {folder}/key
IdentitiesOnly yes
UserKnownHostsFile {folder}/known
StrictHostKeyChecking accept-new
"""
SERVER = """
HostKey {folder}/host
AuthorizedKeysFile {folder}/key.pub
ForceCommand . {folder}/{name}.sh; eval "$SSH_ORIGINAL_COMMAND"
PasswordAuthentication no
StrictModes no
"""


def told_by(folder: Path) -> list[psutil.Process]:
    """The processes that tell what there is in a home below the folder."""
    return [each for each in psutil.process_iter(["cmdline", "environ"]) if "--here" in (each.info["cmdline"] or ())
            and str(folder) in (each.info["environ"] or {}).get("GPUTUI_HOME", "")]  # fmt: skip


@pytest.fixture(params=["stand-in", pytest.param("sshd", marks=[pytest.mark.nightly, pytest.mark.needs("sshd")])])
def homes(
    request: pytest.FixtureRequest, tmp_path: Path, home: Path, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The folder of three homes. `NAME.off` in it cuts a host off."""
    facts = {"folder": str(tmp_path), "user": getuser(), "sshd": shutil.which("sshd", path="/usr/sbin:/usr/bin")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for name in NAMES:
        variables = {"HOME": str(tmp_path), "PATH": path, "GPUTUI_HOME": str(tmp_path / name)}
        variables |= nvml.environment("gpus=2")
        (tmp_path / f"{name}.sh").write_text(
            "".join(f"export {key}={shlex.quote(value)}\n" for key, value in variables.items())
        )
        (tmp_path / f"{name}.sshd").write_text(SERVER.format(name=name, **facts))
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(STAND_IN.format(**facts))
    if request.param == "sshd":
        ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {tmp_path}/client "$@"\n')
        (tmp_path / "client").write_text(CLIENT.format(**facts))
        for key in ("key", "host"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / key], check=True)
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return tmp_path


@needs_tmux
def test_three_homes_one_of_which_is_cut_off_and_comes_back(homes: Path) -> None:
    run = recorded.write(homes / "alpha", seconds=20)
    queue = os.environ | {"GPUTUI_HOME": str(homes / "beta")}
    assert gputui("queue", "pause", env=queue).returncode == 0
    assert gputui("--preset", "quickstart", "--queue", env=queue).returncode == 0
    known = Path(os.environ["XDG_CONFIG_HOME"]) / "gputui" / "hosts.yaml"
    known.parent.mkdir(parents=True)
    known.write_text("alpha:\nbeta: gputui\nnowhere.invalid:\n")
    listed = gputui("hosts", "--json")
    alpha, beta, nowhere = map(json.loads, listed.stdout.splitlines())
    assert [alpha["runs"][0]["id"], len(alpha["gpus"]), beta["queue"][0]["state"]] == [run.id, 2, "waiting"]
    assert "unknown host" in nowhere["fault"]
    assert listed.returncode == 1
    assert "0 of 2 GPUs free, nothing runs, 1 in the queue" in gputui("hosts", "beta").stdout

    gamma = os.environ | {"GPUTUI_HOME": str(homes / "gamma")}
    assert gputui("queue", "pause", env=gamma).returncode == 0
    assert gputui("init", str(homes / "code")).returncode == 0
    mine = homes / "code" / "preset.yaml"
    sent = gputui("hosts", "beta", "gamma", "--queue", str(mine))  # at beta something waits
    assert (sent.returncode, sent.stdout.partition(":")[0]) == (0, "gamma")
    assert len(list(homes.glob("gputui-sent/*/code/train.py"))) == 1
    assert [json.loads(line)["state"] for line in gputui("queue", "--json", env=gamma).stdout.splitlines()] == [
        "waiting"
    ]
    assert gputui("queue", "rm", "r1", env=gamma).returncode == 0
    mine.write_text("workload: {entry: train.py:missing}\n")
    refused = gputui("hosts", "alpha", "nowhere.invalid", "--queue", str(mine))
    assert refused.returncode != 0
    assert refused.stderr.startswith("code is not queued: ")
    assert "missing" in refused.stderr

    with terminal("hosts", *NAMES, size=(100, 30)) as window:
        window.shows("1 in the queue", run.name, *(f"{name} " for name in NAMES), "GPU 1 H100")
        (homes / "beta.off").touch()
        for process in told_by(homes / "beta"):
            process.kill()
        window.shows("beta    ", "no answer since")
        assert "1 in the queue" not in window.screen
        (homes / "beta.off").unlink()
        window.shows("1 in the queue")
        window.type("Q")
        window.shows("Queue quickstart on alpha")
        window.type("Escape", "Down", "Down", "Down", "Enter")
        window.shows("epoch", "accuracy")  # of the run, by gputui there
        window.type("C-q")
        window.shows("GPU 1 H100", "1 in the queue")
        window.type("C-q")
        window.shows("exit code 0")
    until(lambda: not told_by(homes), 30)
    assert gputui("queue", "rm", "r1", env=queue).returncode == 0
