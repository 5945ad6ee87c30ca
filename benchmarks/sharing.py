"""Rounds of starts at once, as two users: whether two ever get one GPU, and whether a lease is left behind.

    python benchmarks/sharing.py [--rounds 200] [--starts 8] [--gpus 4] [--killed 0.25] [--strangers 0.5] [--seed 1]

In each round so many processes start at the same moment and take a GPU or two, or one of two places on a GPU (as
queued runs with run.per_gpu=2), or are refused. Some of them are killed
at a random moment: while they look at the GPUs, choose, hold their leases or give them back. In some rounds a foreign
process appears on a GPU at a random moment. The GPUs are the tests' stand-in for NVML. The second user needs root; else
both are the same. The exit code is 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gputui.engine.files.places import runs_folder
from gputui.engine.leases import gpu_use, records
from gputui.engine.leases.gpu_use import GpuUse, Wish
from gputui.engine.leases.records import NotFree
from gputui.engine.options import gpu_choice
from gputui.engine.system.identity import Place

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.telemetry import compiled

ANOTHER_USER = 65534
WATCHED_SECONDS = "0.02"  # two looks before the one under the lock
HELD_SECONDS, ROUND_SECONDS = 0.3, 0.5  # the longest time of a lease, and of a round until the last kill
CHOICES = (("free:1", 1), ("free:1", 1), ("free:2", 1), ("fits:1", 1), ("free:1", 2), ("free:1", 2))  # with per_gpu
NAMES = "from gputui.engine.leases import gpu_use\nprint(*(gpu.key for gpu in gpu_use.read()))"


@dataclass
class Rounds:
    """The folder of the stand-in's files, the names of the GPUs, and what was counted and found wrong so far."""

    folder: Path
    names: tuple[str, ...]
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def carry_out(self, number: int, arguments: argparse.Namespace) -> None:
        """Carry out the round `number`, count its starts, and add a line to `wrong` for each fault."""
        stranger = subprocess.Popen(["sleep", "3600"]) if random.random() < arguments.strangers else None
        gate, opened = os.pipe()
        children = [self._start(gate, opened, at) for at in range(arguments.starts)]
        os.close(gate)
        victims = [pid for pid in children if random.random() < arguments.killed]
        acts = [(random.uniform(0, ROUND_SECONDS), pid) for pid in victims]
        acts += [(random.uniform(0, ROUND_SECONDS / 4), 0)] if stranger else []
        began, appeared = time.monotonic(), float("inf")
        os.close(opened)  # all begin
        for at, pid in sorted(acts):
            time.sleep(max(0.0, began + at - time.monotonic()))
            if pid:
                os.kill(pid, signal.SIGKILL)  # still a child: it is waited for below
            elif stranger is not None:
                self._prepared_use().rename(self.folder / f"use.{stranger.pid}")
                appeared = time.monotonic()
        for pid in children:
            _, status = os.waitpid(pid, 0)
            self.counts["killed" if os.WIFSIGNALED(status) else "ended"] += 1
        self._judge(number, stranger, appeared)

    def _prepared_use(self) -> Path:
        """Return a file that says that a process uses the first GPU. The stand-in for NVML finds it only after it was
        renamed.
        """
        path = self.folder / "prepared"
        path.write_text("0 600 0\n")
        return path

    def _judge(self, number: int, stranger: subprocess.Popen[bytes] | None, appeared: float) -> None:
        for path in self.folder.glob("said.*"):
            said = json.loads(path.read_text())
            path.unlink()
            self.counts[said["what"]] += 1
            if said["what"] == "twice":
                self.wrong.append(f"round {number}: two on {said['gpus']}")
            if said["what"] != "not free" and self.names[0] in said["gpus"] and appeared < said["looked"]:
                self.wrong.append(f"round {number}: a start took the GPU that a foreign process used before its look")
        self.wrong += [
            f"round {number}: {name} is leased by {who}" for name, who in records.holders().items() if not who.stuck
        ]
        if stranger is not None:
            self.counts["foreign processes"] += 1
            stranger.kill()
            stranger.wait()
            (self.folder / f"use.{stranger.pid}").unlink()

    def _start(self, gate: int, opened: int, at: int) -> int:
        """Fork a start, which begins when all writers of the pipe `gate` are closed. Return its process id.

        `opened` is the writing end of the pipe. Starts with an odd number `at` belong to the second user.
        """
        seed = random.random()
        if pid := os.fork():
            return pid
        code = 1
        with contextlib.suppress(BaseException):
            os.close(opened)
            random.seed(seed)
            if os.geteuid() == 0 and at % 2:
                os.setuid(ANOTHER_USER)
            # Files with lower descriptors are closed first when a process is killed: before its leases end.
            paths = self.folder.glob("witness.*")
            witnesses = {path.name.partition(".")[2]: os.open(path, os.O_RDONLY) for path in paths}
            os.read(gate, 1)
            self._say(self._train(witnesses))
            code = 0
        os._exit(code)

    def _train(self, witnesses: dict[str, int]) -> dict[str, object]:
        """Take GPUs, hold them for a random time and release them. Return what happened: `what` is `trained`, `shared`
        or `shared with another` (a place on a GPU), `not free`, or `twice` (another start had one of the GPUs too, or
        the place).

        If GPUs were taken, `gpus` has their names, and `looked` the time of the last reading before the choice
        (monotonic; 0 if GPUs are shared). `witnesses` has an open file for each GPU by name, which is locked while the
        GPU is held; for each of its places, with its number; and for each user, who shares the GPU alone.
        """
        text, per_gpu = random.choice(CHOICES)
        choice = gpu_choice.parse(text)
        assert choice is not None
        looks, read = list[float](), gpu_use.read

        def looked() -> list[GpuUse]:
            looks.append(time.monotonic())
            return read()

        gpu_use.read = looked  # each look, also the last one
        try:
            gpus, leases = gpu_use.choose(
                Wish(choice, 1, self.names, per_gpu=per_gpu), "a training", idle_known=per_gpu > 1
            )
        except NotFree:
            return {"what": "not free"}
        names, what, last_look = [gpu.key for gpu in gpus], "trained", looks[-1]
        locked = names if per_gpu == 1 else [f"{names[0]}.{leases[0].slot}"]
        try:
            if per_gpu > 1:
                what = "shared" if leases[0].slot == 1 else "shared with another"
                leases[0].write("a training", str(runs_folder() / "20261127-010101-a"))
                fcntl.flock(witnesses[names[0]], fcntl.LOCK_SH | fcntl.LOCK_NB)
                mine, other = sorted((0, ANOTHER_USER), key=lambda user: user != os.geteuid())
                fcntl.flock(witnesses[f"{names[0]}.{mine}"], fcntl.LOCK_SH)
                fcntl.flock(witnesses[f"{names[0]}.{other}"], fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.flock(witnesses[f"{names[0]}.{other}"], fcntl.LOCK_UN)
            for name in locked:
                fcntl.flock(witnesses[name], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            what = "twice"
        time.sleep(random.uniform(0, HELD_SECONDS))
        for witness in witnesses.values():
            fcntl.flock(witness, fcntl.LOCK_UN)
        gpu_use.give_back(leases)
        # A run that shares a GPU may take one that a foreign process uses.
        return {"what": what, "gpus": names, "looked": 0.0 if choice.shared else last_look}

    def _say(self, happened: dict[str, object]) -> None:
        path = self.folder / f"saying.{os.getpid()}"
        path.write_text(json.dumps(happened))
        path.rename(self.folder / f"said.{os.getpid()}")


def carry_out(folder: Path, arguments: argparse.Namespace) -> int:
    """Carry out all rounds and print the results. Return 1 if anything was wrong, else 0.

    `folder` is that of the stand-in's files, `arguments` those of the command line.
    """
    names = tuple(subprocess.check_output([sys.executable, "-P", "-c", NAMES], text=True).split())
    for name in names:
        for end in ("", ".1", ".2", ".0", f".{ANOTHER_USER}"):
            (folder / f"witness.{name}{end}").touch()
    rounds = Rounds(folder, names)
    gpu_use.GIVE_BACK_SECONDS = 0.1  # a foreign process that came meanwhile does not end
    Place.here()  # another user may not be able to read what it loads
    began = time.monotonic()
    for number in range(1, arguments.rounds + 1):
        rounds.carry_out(number, arguments)
    print(f"{arguments.rounds} rounds of {arguments.starts} starts for {len(names)} GPUs, "
          f"{time.monotonic() - began:.0f} s")  # fmt: skip
    print(", ".join(f"{count} {what}" for what, count in sorted(rounds.counts.items())))
    print("\n".join(rounds.wrong) or "never two on one GPU, no lease left, no GPU of a foreign process taken")
    return 1 if rounds.wrong else 0


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--starts", type=int, default=8, help="at once in each round")
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--killed", type=float, default=0.25, help="share of the starts")
    parser.add_argument("--strangers", type=float, default=0.5, help="share of the rounds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    random.seed(arguments.seed)
    if arguments.folder is not None:
        return carry_out(arguments.folder, arguments)
    with tempfile.TemporaryDirectory() as name:  # another user can read and write it
        folder = Path(name)
        folder.chmod(0o1777)
        environment = os.environ | {
            "GPUTUI_LEASES": str(folder / "leases"), gpu_use.IDLE_VARIABLE: WATCHED_SECONDS,
            "LD_LIBRARY_PATH": str(compiled(folder)), "FAKE_NVML": f"gpus={arguments.gpus} use={folder / 'use'}",
        }  # fmt: skip
        command = [sys.executable, "-P", __file__, *sys.argv[1:], "--folder", name]
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
