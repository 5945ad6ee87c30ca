"""Real sweeps whose processes are killed again and again: whether a trial is lost, counted twice, or learns otherwise.

    python -m benchmarks.killed_sweep [--kills 50] [--seed 1] [--imports] [--gently]

The trials train own code on the CPU, with mixed precision and callbacks that have a state. Process of the sweep, runner
of the queue, engines and trainers are killed with SIGKILL, half of them within 0.1 s after a checkpoint appears, the
others at any moment; a sweep that was killed is resumed, all else recovers by itself. With `--gently`, processes of
sweeps and runners also get SIGTERM or SIGINT. Grids and sweeps with halving take turns until there are enough kills.
Each has a home of its own, and each is compared with a grid that nothing has disturbed: the loss of every step that was
trained, and the figures of every epoch. Counted are steps that were trained more than once: those after the last
checkpoint of a trainer that was killed, and no others. The trainers are forked from a process that has imported
TensorFlow; with `--imports` each imports it. The exit code is 1 if anything is wrong.
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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gputui.engine.files.reading import read_object
from gputui.engine.proof import folder
from gputui.engine.proof.folder import Proof
from gputui.engine.runs.event_reading import read_events
from gputui.engine.runs.events import EVENTS_FILE, EpochEnd
from gputui.engine.trials import sweep_record
from gputui.engine.trials.sweep_record import LEFT_OUT, Sweep, SweepTrial

from tests.support import forked_engines

KINDS = ("sweep", "runner", "engine", "trainer")
WAIT_SECONDS, PATIENCE_SECONDS, MOST_SECONDS = (0.0, 5.0), 20.0, 1800.0
START_SECONDS = 30.0  # for a command to have written its record
AFTER_A_CHECKPOINT = 0.1  # seconds within which the second half of the kills come
KILLS = 12  # of one sweep
CRASHES = 2  # of one trial; after a third it has failed
STEPS, EPOCHS = 6, 4  # of an epoch, and of a trial
HALVING = ("--halving", "1", "--proof-seeds", "0")
PROGRAM = f"""
import json, os, time
import keras
import numpy as np

class Steps(keras.callbacks.Callback):
    def __init__(self, file):
        super().__init__()
        self.file, self.seen = file, {{"steps": 0}}

    def get_state(self):
        return self.seen

    def set_state(self, state):
        self.seen = state

    def on_train_batch_end(self, batch, logs=None):
        self.seen["steps"] += 1
        line = json.dumps({{"pid": os.getpid(), "step": self.seen["steps"], "loss": logs["loss"]}}) + "\\n"
        file = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, line.encode())
        os.close(file)
        time.sleep(0.01)

def build(context):
    draw = np.random.default_rng(1)
    x = draw.normal(size=(120, 6)).astype("float32")
    y = (x.sum(axis=1) + draw.normal(size=120)).astype("float32")
    keras.utils.set_random_seed(context.seed)
    layers = [keras.layers.Dense(16, "relu"), keras.layers.Dropout(0.2), keras.layers.Dense(1, dtype="float32")]
    model = keras.Sequential([keras.Input((6,)), *layers])
    model.compile(keras.optimizers.Adam(context.args["rate"]), "mse")
    callbacks = [
        keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=1, cooldown=1),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.97),
        Steps(f"{{context.args['rate']}}-{{context.seed}}.steps"),
    ]
    return {{"model": model, "train": (x[:{20 * STEPS}], y[:{20 * STEPS}]), "validation": (x[-40:], y[-40:]),
            "callbacks": callbacks}}
"""
PRESET = f"""
schema_version: 1
workload: {{entry: "train.py:build", args: {{rate: 0.01}}}}
input: {{batch_size: 20}}
precision: {{policy: mixed_bfloat16}}
train: {{epochs: {EPOCHS}, seed: 5, early_stop: val_loss, early_stop_patience: 8}}
run: {{checkpoint: epoch, keep_best: val_loss, sample_seconds: 1}}
"""
OVER = ("--over", "args.rate=1e-4,3e-3,3e-2", "--seeds", "2", "--proof-seeds", "3", "--minutes", "60")
Key = tuple[str, int]  # setting and seed
Steps = Mapping[int, float]  # the loss of each step


@dataclass
class Swept:
    """A sweep that has ended, in a home of its own; `signals` are those that its processes got, by kind."""

    home: Path
    halves: bool
    signals: Counter[str] = field(default_factory=Counter)
    resumed: int = 0

    @property
    def proof(self) -> Proof:
        return Proof(next((self.home / "proofs").glob("2*")))

    @property
    def sweep(self) -> Sweep:
        sweep = self.proof.record.sweep
        assert sweep is not None
        return sweep

    def steps(self) -> dict[Key, list[tuple[int, int, float]]]:
        """Return process, number and loss of each step that was trained, in this order."""
        trained = {}
        for trial in self.sweep.trials:
            file = self.home / f"{trial.changes['workload.args.rate']}-{trial.seed}.steps"
            if file.exists():
                lines = [json.loads(line) for line in file.read_text().splitlines()]
                trained[key_of(trial)] = [(line["pid"], line["step"], line["loss"]) for line in lines]
        return trained

    def epochs(self) -> dict[Key, dict[int, Mapping[str, float | None]]]:
        """Return the figures of each epoch of each trial. Those of an epoch whose evaluation was ended and begun again
        are stored twice, first without the validation. Raises SystemExit if they differ otherwise.
        """
        figures: dict[Key, dict[int, Mapping[str, float | None]]] = {}
        for trial in self.sweep.trials:
            of_trial = figures.setdefault(key_of(trial), {})
            for event in read_events(self.home / "runs" / trial.run, [EVENTS_FILE]).of(EpochEnd):
                if not of_trial.get(event.epoch, {}).items() <= event.metrics.items():
                    sys.exit(f"{trial.run}: epoch {event.epoch} has two values")
                of_trial[event.epoch] = dict(event.metrics)
        return figures


def key_of(trial: SweepTrial) -> Key:
    return sweep_record.key_of(trial.changes), trial.seed


class Killer:
    """Carries out one sweep in the home folder `home`, of whose processes `kills` get a signal."""

    def __init__(self, home: Path, halves: bool, kills: int, source: random.Random, gently: bool) -> None:
        self._home, self._kills, self._source, self._gently = home, kills, source, gently
        self.swept = Swept(home, halves)

    def carry_out(self) -> Swept:
        self._home.mkdir()
        (self._home / "train.py").write_text(PROGRAM)
        (self._home / "preset.yaml").write_text(PRESET)
        self._gputui("sweep", "--preset", "preset.yaml", *OVER, *(HALVING if self.swept.halves else ()))
        self._wait_for(lambda: any((self._home / "proofs").glob("2*/proof.json")))
        until = time.monotonic() + MOST_SECONDS
        while (record := self.swept.proof.record).state != "done":
            if record.state == "failed" or time.monotonic() > until:
                sys.exit(f"{self.swept.proof.path}: {record.state}: {record.error}")
            if record.state in ("crashed", "stopped"):
                self._gputui("sweep", "--resume", self.swept.proof.id)
                self._wait_for(lambda: self.swept.proof.record.state not in ("crashed", "stopped"))
                self.swept.resumed += 1
            elif self.swept.signals.total() < self._kills:
                self._interfere()
            else:
                time.sleep(0.5)
        return self.swept

    def _gputui(self, *words: str) -> None:
        """Start a command that goes on in the background."""
        command = [str(Path(sys.executable).with_name("gputui")), *words]
        environment = os.environ | {"GPUTUI_HOME": str(self._home)}
        with (self._home / "errors").open("ab") as errors:
            subprocess.Popen(
                command, env=environment, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True,
                cwd=self._home,
            )  # fmt: skip

    @staticmethod
    def _wait_for(condition: object) -> None:
        assert callable(condition)
        until = time.monotonic() + START_SECONDS
        while not condition() and time.monotonic() < until:
            time.sleep(0.1)

    def _interfere(self) -> None:
        """Wait for a random moment, and send a signal to a process of a random kind if one is alive then."""
        kind, began = self._source.choice(KINDS), time.monotonic()
        while not self._alive(kind) and time.monotonic() < began + PATIENCE_SECONDS:
            time.sleep(0.1)
        if self._source.random() < 0.5:
            time.sleep(self._source.uniform(*WAIT_SECONDS))
        else:
            before, began = self._checkpoints(), time.monotonic()
            while self._checkpoints() <= before and time.monotonic() < began + PATIENCE_SECONDS:
                time.sleep(0.002)
            time.sleep(self._source.uniform(0, AFTER_A_CHECKPOINT))
        if not (alive := self._alive(kind)):
            return
        pid = self._source.choice(alive)
        number = signal.SIGKILL
        if self._gently and kind in ("sweep", "runner"):
            number = self._source.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            self.swept.signals[kind if number == signal.SIGKILL else f"{kind} ({number.name})"] += 1

    def _checkpoints(self) -> set[Path]:
        return set((self._home / "runs").glob("2*/checkpoints/step-*"))

    def _alive(self, kind: str) -> list[int]:
        return [pid for each, pid in self._processes() if each == kind]

    def _processes(self) -> Iterator[tuple[str, int]]:
        """Yield the kind and the id of each process that may get a signal."""
        proof = self.swept.proof
        record = folder.read_record(proof.path)
        candidates = [("sweep", record.pid), ("runner", _pid(self._home / "queue" / ".runner.json"))]
        for trial in record.sweep.trials if record.sweep else []:
            status = read_object(self._home / "runs" / trial.run / "status.json").value
            if status.get("phase") != "ended" and trial.crashes < CRASHES:
                candidates += [(role, status.get(f"{role}_pid") or 0) for role in ("engine", "trainer")]
        for kind, pid in candidates:
            with contextlib.suppress(OSError):
                if pid and b"gputui" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    yield kind, pid


def _pid(file: Path) -> int:
    pid = read_object(file).value.get("pid")
    return pid if isinstance(pid, int) else 0


def faults(swept: Swept, whole: Swept) -> Iterator[str]:
    """Yield in words what is wrong with a sweep; `whole` is a grid that nothing has disturbed."""
    sweep = swept.sweep
    made = sorted(run.name for run in (swept.home / "runs").iterdir() if run.name[0] != ".")
    if made != sorted(trial.run for trial in sweep.trials if trial.state != LEFT_OUT):
        yield f"its runs are not its trials: {made}"
    twice = Counter((trial.part, *key_of(trial)) for trial in sweep.trials)
    yield from (f"{key} is counted {count} times" for key, count in twice.items() if count > 1)
    yield from (f"{trial.run}: {trial.state}: {trial.error}" for trial in sweep.trials if trial.error)
    if left := [file.name for file in (swept.home / "queue").glob("[!.]*.json")]:
        yield f"entries left in the queue: {left}"
    if swept.sweep.winner != whole.sweep.winner:
        yield f"the winner is {swept.sweep.winner}"
    expected = {key: {step: loss for _, step, loss in steps} for key, steps in whole.steps().items()}
    for key, steps in swept.steps().items():
        if key in expected:
            wrong = [(step, loss) for _, step, loss in steps if expected[key].get(step) != loss]
            yield from (
                f"{key}: step {step} has the loss {loss}, not {expected[key].get(step)}" for step, loss in wrong
            )
        yield from (f"{key}: {text}" for text in gaps(steps))
    figures = whole.epochs()
    for key, epochs in swept.epochs().items():
        if key in figures:
            wrong_epochs = [epoch for epoch, values in epochs.items() if values != figures[key].get(epoch)]
            yield from (f"{key}: the figures of epoch {epoch} differ" for epoch in wrong_epochs)
    yield from (
        f"{trial.run}: {trial.value} is not the metric of its last epoch"
        for trial in sweep.trials
        if trial.value is not None and trial.value != swept.epochs()[key_of(trial)][EPOCHS]["val_loss"]
    )


def gaps(steps: list[tuple[int, int, float]]) -> Iterator[str]:
    """Yield in words where a process has left out steps, or has begun neither with an epoch nor after the last step of
    another process, which may have been stopped with a checkpoint.
    """
    last, ends = 0, {0}
    for number, (pid, step, _) in enumerate(steps):
        if number and pid != steps[number - 1][0]:
            ends.add(last)
            exact = step <= last + 1 and ((step - 1) % STEPS == 0 or step - 1 in ends)
        else:
            exact = step == last + 1
        if not exact:
            yield f"step {step} follows step {last}"
        last = step


def again(swept: Swept) -> int:
    """Return the number of steps that were trained more than once."""
    return sum(len(steps) - len({step for _, step, _ in steps}) for steps in swept.steps().values())


def line(name: str, swept: Swept, whole: Swept) -> str:
    """Return what has happened to a sweep in one line."""
    states = Counter(trial.state for trial in swept.sweep.trials)
    trained, known = swept.steps(), whole.steps().keys()
    compared = sum(len(steps) for key, steps in trained.items() if key in known)
    return (
        f"{name}: signals: {dict(swept.signals)}, resumed {swept.resumed}; trials: {dict(states)}, launched again "
        f"{sum(trial.crashes for trial in swept.sweep.trials)}; steps: {sum(map(len, trained.values()))}, compared "
        f"{compared}, trained again {again(swept)}"
    )


def carry_out(given: argparse.Namespace, scratch: Path) -> int:
    source, wrong, signals, repeated = random.Random(given.seed), 0, Counter[str](), 0
    whole = Killer(scratch / "whole", False, 0, source, False).carry_out()
    print(line("an undisturbed grid", whole, whole), flush=True)
    halved = Killer(scratch / "halved", True, 0, source, False).carry_out()
    lines = list(faults(halved, whole)) + [f"{again(halved)} steps are trained again"] * bool(again(halved))
    print(line("undisturbed, with halving", halved, whole), *lines, sep="\n", flush=True)
    wrong += len(lines)
    number = 0
    while signals.total() < given.kills:
        number += 1
        halves, kills = number % 2 == 0, min(KILLS, given.kills - signals.total())
        swept = Killer(scratch / str(number), halves, kills, source, given.gently).carry_out()
        lines = list(faults(swept, whole))
        most = STEPS * sum(swept.signals.values())
        if again(swept) > most:
            lines.append(f"{again(swept)} steps are trained again, more than an epoch for each signal")
        print(line(f"{number}, {'halving' if halves else 'grid'}", swept, whole), *lines, sep="\n", flush=True)
        signals, repeated, wrong = signals + swept.signals, repeated + again(swept), wrong + len(lines)
    print(f"{number} sweeps, signals: {signals.total()}, {dict(signals)}; steps trained again: {repeated}")
    print(f"faults: {wrong}")
    return int(bool(wrong))


def main() -> int:
    """Print what has happened to each sweep, and what is wrong; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--imports", action="store_true", help="each trainer imports TensorFlow, which is slower")
    parser.add_argument("--gently", action="store_true", help="some signals are SIGTERM and SIGINT")
    parser.add_argument("--keep", help="a new folder for all files, which are otherwise removed")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        if given.keep:
            (scratch := Path(given.keep).absolute()).mkdir(parents=True)
        else:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.environ |= {"CUDA_VISIBLE_DEVICES": "-1", "GPUTUI_LEASES": str(scratch / "leases")}
        if not given.imports:
            (place := scratch / "engines").mkdir()
            served = contextlib.contextmanager(forked_engines.served)
            socket = stack.enter_context(served(place))
            os.environ |= {"PYTHONPATH": str(forked_engines.HERE / "site"), forked_engines.ADDRESS: str(socket)}
        return carry_out(given, scratch)


if __name__ == "__main__":
    sys.exit(main())
