"""A queue whose processes are killed again and again: whether a run is lost, runs twice, or keeps its GPU.

    python benchmarks/killed_queue.py [--rounds 8] [--runs 8] [--gpus 4] [--kill runner,start,engine] [--seed 1]

In each round runs are put in the queues of two homes that share the GPUs. Until both are empty, the runner, the process
that starts a run, and the engine are killed at random moments. Runner and engines are real. The GPUs are the tests'
stand-in for NVML, and a stand-in for the trainer holds its GPUs for up to two seconds. The exit code is 1 if anything
was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from gputui.engine import presets
from gputui.engine.leases import gpu_use, records
from gputui.engine.queue import adding, entries, entry_changes
from gputui.engine.runs import Run

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.telemetry import compiled

FOLDER = "KILLED_QUEUE"  # environment variable: the folder of this program, by which its processes are known
MODULES = {"runner": b"gputui.engine.queue", "start": b"gputui.engine.queue.start", "engine": b"gputui.engine"}
KILLS = 0.1  # of each kind, between two looks
LOOK_SECONDS, ROUND_SECONDS, END_SECONDS = 0.3, 300.0, 30.0
TRIES = 3  # run.tries: a run whose engine is killed so often ends as crashed
# Python reads `sitecustomize` first. This takes the place of the trainer: it uses its GPUs as NVML shows it, and notes
# when it begins and ends, and if another trainer has one of its GPUs or its run.
TRAINER = """
import sys
if sys.orig_argv[-2:-1] == ["gputui.engine.trainer"]:
    import fcntl, json, os, random, select, signal, time
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))
    lifeline, run = os.fdopen(int(os.environ.pop("GPUTUI_LIFELINE"))), sys.orig_argv[-1]
    folder = os.environ["KILLED_QUEUE"]

    def note(what):
        with open(f"{folder}/notes", "a") as notes:
            notes.write(json.dumps([what, run]) + "\\n")

    time.sleep(random.random())  # TensorFlow would be imported, and no GPU used yet
    with open(f"{run}/options.json") as options:
        gpus = json.load(options)["device"]["visible"]
    with open(f"{folder}/using.{os.getpid()}", "w") as use:
        use.write("".join(f"{gpu.rpartition('-')[2]} 600 50\\n" for gpu in gpus))
    os.rename(use.name, f"{folder}/use.{os.getpid()}")
    witnesses = [open(f"{folder}/witness.{name.replace('/', '+')}", "w") for name in (*gpus, run)]
    for witness in witnesses:
        try:
            fcntl.flock(witness, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note("two on one GPU" if "GPU" in witness.name else "runs twice")
    note("begun")
    outcome, until = "ok", time.monotonic() + 2 * random.random()
    while time.monotonic() < until and outcome == "ok":
        if select.select([lifeline], [], [], 0.05)[0]:
            outcome = "stopped" if lifeline.readline() else ""  # its engine is gone
    if not outcome:
        time.sleep(random.random())  # as if it wrote a checkpoint
    for witness in witnesses:
        witness.close()
    os.unlink(f"{folder}/use.{os.getpid()}")
    if outcome:
        with open(f"{run}/result.new", "w") as result:
            result.write(json.dumps({"outcome": outcome}))
        os.rename(result.name, f"{run}/result.json")
    note(outcome or "left")
    os._exit(0)
"""


def environment(folder: Path, gpus: int) -> dict[str, str]:
    """Return the environment variables with which trainers and GPUs are the stand-ins in `folder`. Writes these into
    it.

    `gpus` is the number of GPUs.
    """
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(TRAINER)
    return {
        FOLDER: str(folder), "GPUTUI_LEASES": str(folder / "leases"), gpu_use.IDLE_VARIABLE: "0",
        "LD_LIBRARY_PATH": str(compiled(folder)), "FAKE_NVML": f"gpus={gpus} use={folder / 'use'}",
        "PYTHONPATH": str(site),
    }  # fmt: skip


def processes(module: bytes, folder: Path) -> Iterator[int]:
    """Yield the ids of the processes that run `module` and belong to the benchmark with this folder."""
    mine = f"{FOLDER}={folder}".encode()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            if module in words and mine in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                yield int(name)


def kill_one(kinds: Sequence[str], folder: Path, killed: Counter[str]) -> None:
    """For each of `kinds` (keys of MODULES), kill one of its processes with the probability KILLS, and count it in
    `killed`.
    """
    for kind in kinds:
        if random.random() < KILLS and (pids := list(processes(MODULES[kind], folder))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(random.choice(pids), signal.SIGKILL)
                killed[kind] += 1


def carry_out(folder: Path, arguments: argparse.Namespace) -> int:
    """Carry out all rounds and print the results. Return 1 if anything was wrong, else 0.

    `folder` is that of the stand-ins' files, `arguments` those of the command line.
    """
    homes, made, killed = [folder / "one", folder / "two"], list[Run](), Counter[str]()
    kinds = [presets.resolve("quickstart", [f"visible=free:{count}", f"run.tries={TRIES}"]) for count in (1, 1, 2)]
    began, wrong = time.monotonic(), list[str]()
    for number in range(1, arguments.rounds + 1):
        for position in range(arguments.runs):
            os.environ["GPUTUI_HOME"] = str(homes[position % len(homes)])
            made.append(adding.queue_preset(random.choice(kinds)).folder)
        if not emptied(homes, lambda: kill_one(arguments.kill, folder, killed)):
            wrong.append(f"round {number}: the queues were not empty after {ROUND_SECONDS:.0f} s")
    until = time.monotonic() + END_SECONDS  # trainers without an engine end by themselves
    while (left := left_behind(folder)) and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
    wrong += left
    states = Counter(run.state for run in made)
    wrong += judged(folder, made, bool(killed["engine"]))
    print(f"{len(made)} runs in {arguments.rounds} rounds, {time.monotonic() - began:.0f} s; killed: {dict(killed)}")
    print(f"the runs have ended: {dict(states)}")
    print("\n".join(wrong) or "no run lost, none twice, never two on one GPU, no lease and no process left")
    return 1 if wrong else 0


def emptied(homes: Sequence[Path], disturb: Callable[[], None]) -> bool:
    """Wait until the queues of all homes are empty, and call `disturb` again and again meanwhile. Return False if that
    takes more than ROUND_SECONDS.

    Held runs are released.
    """
    until = time.monotonic() + ROUND_SECONDS
    while time.monotonic() < until:
        left = 0
        for home in homes:
            os.environ["GPUTUI_HOME"] = str(home)
            listed = entries.all_entries()
            left += len(listed)
            for entry in listed:
                if entry.state == "held":  # three runs in a row have crashed; their user lets the others go on
                    entry_changes.release(entry.run)
            entries.ensure_runner()  # as every command does
        if not left:
            return True
        disturb()
        time.sleep(random.uniform(0, LOOK_SECONDS))
    return False


def left_behind(folder: Path) -> list[str]:
    """Return a line for each lease that is still held, and for each process of the benchmark that still runs."""
    leases = [f"{name} is leased by {who}" for name, who in records.holders().items()]
    modules = (*MODULES.values(), b"gputui.engine.trainer")
    return leases + [f"process {pid} is left" for module in modules for pid in processes(module, folder)]


def judged(folder: Path, made: Sequence[Run], engines_killed: bool) -> list[str]:
    """Return a line for each fault of the runs `made`, by the notes of their trainers in `folder` and by their states.

    A run may have crashed only if `engines_killed` is True.
    """
    notes = [json.loads(line) for line in (folder / "notes").read_text().splitlines()]
    done = Counter(run for what, run in notes if what == "ok")
    wrong = [f"{what}: {run}" for what, run in notes if what in ("two on one GPU", "runs twice")]
    wrong += [f"trained {count} times: {run}" for run, count in done.items() if count > 1]
    ends = ("ok", "crashed") if engines_killed else ("ok",)
    return wrong + [f"{run.state}: {run.path}" for run in made if run.state not in ends]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--runs", type=int, default=8, help="in each round")
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--kill", default=",".join(MODULES), help=f"of {', '.join(MODULES)}; none")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    arguments.kill = [] if arguments.kill == "none" else arguments.kill.split(",")
    if unknown := set(arguments.kill) - MODULES.keys():
        parser.error(f"--kill: {', '.join(unknown)} is none of {', '.join(MODULES)}")
    random.seed(arguments.seed)
    if FOLDER in os.environ:
        return carry_out(Path(os.environ[FOLDER]), arguments)
    with tempfile.TemporaryDirectory() as name:
        variables = environment(Path(name), arguments.gpus)
        command = [sys.executable, "-P", __file__, *sys.argv[1:]]
        return subprocess.run(command, env=os.environ | variables, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
