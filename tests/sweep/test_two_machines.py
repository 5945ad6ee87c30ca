"""One sweep and two machines with a common home: only one carries it out, and the other goes on after it is gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from gputui.engine.proof import folder
from gputui.engine.runs import Run, runs_folder
from gputui.engine.runs.event_reading import read_events
from gputui.engine.runs.events import EVENTS_FILE, EpochEnd

from tests.support import standing_in
from tests.support.front_door import until

SWEEP = "sweep --preset quickstart --over learning_rate=1e-4,1e-3,1e-2 --proof-seeds 0 --minutes 20 --json"
TRAINS = """
    while folder.endswith("-002") and not os.path.exists(f"{folder}/../../go"):
        time.sleep(0.1)
    tell(type="epoch", epoch=1, step=1, metrics={"val_loss": float(folder[-1])}, seconds=1.0)
    with open(f"{folder}/result.json", "w") as stream:
        json.dump({"outcome": "ok", "seconds": 1.0}, stream)
    os._exit(0)
"""


def command_on(host: str, words: str) -> list[str]:
    """The command on a machine of that name, with processes of its own, which all end with it."""
    script = f"hostname {host}; exec {Path(sys.executable).parent}/gputui {words}"
    return ["unshare", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child=KILL", "sh", "-c", script]


@pytest.mark.slow
@pytest.mark.needs("root")  # for unshare
def test_another_machine_goes_on_with_the_sweep_of_one_that_is_switched_off(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site").mkdir()
    begins = standing_in.TRAINER.partition("    if asked :=")[0]
    (tmp_path / "site" / "sitecustomize.py").write_text(begins + TRAINS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    nothing = subprocess.DEVNULL
    first = subprocess.Popen(command_on("first", SWEEP), stdout=nothing, stderr=nothing, stdin=nothing)
    try:
        until(lambda: (home / "proofs").exists() and any((home / "proofs").glob("2*/proof.json")))
        sweep = folder.find("latest")
        begun = runs_folder() / f"{sweep.id}-002" / EVENTS_FILE
        until(begun.exists)
        assert sweep.record.host == "first"
        again = command_on("second", f"sweep --resume {sweep.id} --json")
        refused = subprocess.run(again, capture_output=True, text=True, check=False, stdin=nothing, timeout=60)
        assert refused.returncode == 2
        assert refused.stderr == f"{sweep.id} is running; gputui proof {sweep.id} shows it\n"
    finally:
        first.kill()
        first.wait()
    (home / "go").touch()
    done = subprocess.run(again, capture_output=True, text=True, check=False, stdin=nothing, timeout=200)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["host"] == "second"
    trials = record["sweep"]["trials"]
    assert sorted(os.listdir(runs_folder())) == [trial["run"] for trial in trials]
    assert {trial["state"] for trial in trials} == {"done"}
    assert max(Counter(json.dumps(trial["changes"]) for trial in trials).values()) == 1
    ends = [len(read_events(Run(runs_folder() / trial["run"]).path, [EVENTS_FILE]).of(EpochEnd)) for trial in trials]
    assert ends == [1, 1, 1], "what was complete was not trained again"
