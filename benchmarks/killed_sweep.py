"""A real sweep whose processes are killed again and again: whether a trial is lost, trained twice, or has other losses.

    python -m benchmarks.killed_sweep [--kills 24] [--seed 1]

A sweep with halving trains on the CPU in a home of its own. Its process, the runner of the queue, engines and trainers
are killed at random moments; a killed sweep is resumed, all else recovers by itself. A second sweep is left alone. The
exit code is 1 if the two have other runs or, for a setting and seed that both have trained to the end, another metric.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from gputui.engine.files.reading import read_object
from gputui.engine.proof import folder
from gputui.engine.proof.folder import Proof
from gputui.engine.trials import sweep_groups
from gputui.engine.trials.sweep_record import DONE, LEFT_OUT, Sweep

WAIT_SECONDS, START_SECONDS, MOST_SECONDS = (2.0, 8.0), 8.0, 3600.0
OVER = "learning_rate=3e-4,1e-3,3e-3,1e-2"
SWEEP = ("sweep", "--preset", "quickstart", "--set", "train.epochs=3", "--set", "train.steps_per_epoch=4",
         "--over", OVER, "--halving", "1", "--proof-seeds", "3", "--minutes", "60")  # fmt: skip


def gputui(home: Path, *words: str) -> None:
    """Start a command that goes on in the background, in the home folder `home`."""
    environment = os.environ | {"GPUTUI_HOME": str(home)}
    command = [str(Path(sys.executable).with_name("gputui")), *words]
    with (home / "errors").open("ab") as errors:
        subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True, cwd=home
        )
    time.sleep(START_SECONDS)


def processes(home: Path, sweep: Proof) -> Iterator[tuple[str, int]]:
    """Yield the kind and the id of each process that may be killed."""
    statuses = [read_object(run / "status.json").value for run in (home / "runs").glob("2*")]
    going = [status for status in statuses if status.get("phase") != "ended"]
    candidates = [("sweep", folder.read_record(sweep.path).pid), ("runner", _pid(home / "queue" / ".runner.json"))]
    candidates += [(role, status.get(f"{role}_pid")) for status in going for role in ("engine", "trainer")]
    for kind, pid in candidates:
        with contextlib.suppress(OSError):
            if pid and b"gputui" in Path(f"/proc/{pid}/cmdline").read_bytes():
                yield kind, pid


def _pid(file: Path) -> int:
    pid = read_object(file).value.get("pid")
    return pid if isinstance(pid, int) else 0


def swept(home: Path, kills: int, source: random.Random) -> tuple[Sweep, Counter[str]]:
    """Carry out a sweep while `kills` of its processes are killed. Return its record and the kills by kind."""
    home.mkdir()
    gputui(home, *SWEEP)
    sweep = Proof(next((home / "proofs").iterdir()))
    killed: Counter[str] = Counter()
    until = time.monotonic() + MOST_SECONDS
    while (record := sweep.record).state != "done":
        if record.state in ("failed", "stopped") or time.monotonic() > until:
            sys.exit(f"{sweep.path}: {record.state}: {record.error}")
        if record.state == "crashed":
            gputui(home, "sweep", "--resume", sweep.id)
            continue
        time.sleep(source.uniform(*WAIT_SECONDS))
        alive = list(processes(home, sweep))
        kinds = sorted({kind for kind, _ in alive})
        if not kinds or killed.total() >= kills:
            continue
        kind = source.choice([*kinds, *(set(kinds) & {"engine", "trainer"})])
        pid = source.choice([pid for each, pid in alive if each == kind])
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            killed[kind] += 1
    assert record.sweep is not None
    return record.sweep, killed


def faults(home: Path, sweep: Sweep, alone: Sweep) -> Iterator[str]:
    """Yield in words what is wrong with the sweep in the folder `home`; `alone` is the sweep that was left alone."""
    made = sorted(run.name for run in (home / "runs").iterdir() if run.name[0] != ".")
    if made != sorted(trial.run for trial in sweep.trials if trial.state != LEFT_OUT):
        yield f"its runs are not its trials: {made}"
    metrics = [
        {(sweep_groups.key_of(trial.changes), trial.seed): trial.value for trial in each.trials if trial.state == DONE}
        for each in (sweep, alone)
    ]
    for key in metrics[0].keys() & metrics[1].keys():
        if metrics[0][key] != metrics[1][key]:
            yield f"{key}: {metrics[0][key]} instead of {metrics[1][key]}"


def main() -> int:
    """Print the kills and what is wrong; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        sweep, killed = swept(Path(scratch) / "killed", given.kills, random.Random(given.seed))
        alone, _ = swept(Path(scratch) / "alone", 0, random.Random(given.seed))
        wrong = list(faults(Path(scratch) / "killed", sweep, alone))
    print("killed:", ", ".join(f"{kind} {count}" for kind, count in sorted(killed.items())))
    states = Counter(trial.state for trial in sweep.trials)
    print("trials:", ", ".join(f"{state} {count}" for state, count in sorted(states.items())))
    print("\n".join(wrong) or "no trial is lost, none was trained twice, and the metrics are the same")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
