"""Two machines share one sweep: namespaces with a host name, processes and a home of their own, and real trainings."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.front_door import COMMAND

MACHINE = ["setpriv", "--pdeathsig", "KILL", "unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
SWEEP = (
    "--preset", "quickstart", "--set", "train.epochs=1", "--set", "train.steps_per_epoch=2",
    "--over", "learning_rate=1e-4,1e-3,1e-2", "--proof-seeds", "0", "--minutes", "20",
)  # fmt: skip


def machine(folder: Path, name: str, *words: str) -> subprocess.Popen[str]:
    """Start `gputui sweep` with these words on the machine `name`. If it is killed, all of its processes end."""
    home = folder / name
    home.mkdir(exist_ok=True)
    own = {"HOME": str(home), "GPUTUI_HOME": str(home / "g"), "XDG_CONFIG_HOME": str(home), "GPUTUI_LEASES": str(home)}
    command = [*MACHINE, "sh", "-c", f'hostname {name}; exec "$@"', "sh", *COMMAND, "sweep", *words, "--json"]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | own
    )  # fmt: skip


def entries(journal: Path) -> list[dict[str, Any]]:
    """Return the entries of the members in a journal."""
    lines = journal.read_text().splitlines() if journal.exists() else []
    attributes = [json.loads(line).get("user_attrs") or {} for line in lines if line.endswith("}")]
    return [each["gputui"] for each in attributes if "gputui" in each]


@pytest.mark.needs("optuna")
@pytest.mark.needs("setpriv")
@pytest.mark.needs("root")
@pytest.mark.slow
def test_two_machines_make_no_trial_twice_although_one_is_switched_off(tmp_path: Path) -> None:
    journal = tmp_path / "s.journal"
    first, second = (machine(tmp_path, name, *SWEEP, "--study", str(journal)) for name in ("node1", "node2"))
    until = time.monotonic() + 200
    while not any(entry.get("host") == "node1" for entry in entries(journal)):
        assert time.monotonic() < until
        assert first.poll() is None, first.communicate()
        time.sleep(0.2)
    first.kill()
    first.communicate()
    first = machine(tmp_path, "node1", "--resume")
    ended = [each.communicate(timeout=300) for each in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), ended
    sweeps = [json.loads(printed)["sweep"] for printed, _ in ended]
    for here, there in zip(*(sweep["trials"] for sweep in sweeps), strict=True):
        assert {here["on"], there["on"]} in ({"", "node1"}, {"", "node2"})
        assert here["state"] == there["state"] == "done"
        assert here["value"] == there["value"]
        assert here["run"] == there["run"]
    assert sweeps[0]["winner"] == sweeps[1]["winner"]
    runs = [run.name for name in ("node1", "node2") for run in (tmp_path / name / "g" / "runs").glob("2*")]
    assert sorted(runs) == sorted(trial["run"] for trial in sweeps[0]["trials"]), "each trial was trained once"
