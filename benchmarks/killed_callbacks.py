"""Trainings with callbacks that are killed and resumed: whether they end as trainings that nothing has disturbed.

    python benchmarks/killed_callbacks.py [--count 20] [--kinds single,mirrored,multi_worker] [--kills 2] [--seed 1]

`count` trainings of each kind are killed up to `kills` times each, the trainer or the engine, at random moments between
the start of the training and its end, and resumed. Command, engine and trainer are real; TensorFlow is imported once,
and each trainer is forked. Compared with an undisturbed training: the step of the end, the state of a callback with
get_state, the model's weights at the end (the best ones, by EarlyStopping), and all files that the callbacks have
written. The exit code is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gputui.engine.runs import Run

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.support import forked_engines
from tests.support.cluster import free_ports
from tests.support.front_door import COMMAND, happened

KINDS = {"single": 1, "mirrored": 1, "multi_worker": 2}  # workers
SECONDS = 300.0  # for one start of a training to end
PATTERNS = 4  # trainings that differ in their data and seed
LOOK_SECONDS = 0.02
ADDRESS = re.compile(rb'"shared_object_id": [0-9]+')
PROGRAM = """
import json
import keras
import numpy as np

class Counts(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen = {"batches": 0, "begun": 0, "epochs": 0, "tests": 0, "losses": [], "sums": np.zeros(3, "float32")}

    def get_state(self):
        return self.seen

    def set_state(self, state):
        self.seen = state

    def on_train_batch_begin(self, batch, logs=None):
        self.seen["begun"] += 1

    def on_train_batch_end(self, batch, logs=None):
        self.seen["batches"] += 1

    def on_epoch_begin(self, epoch, logs=None):
        self.seen["epochs"] += 1

    def on_test_end(self, logs=None):
        self.seen["tests"] += 1

    def on_epoch_end(self, epoch, logs=None):
        self.seen["losses"].append(logs["val_loss"])
        self.seen["sums"][epoch % 3] += logs["val_loss"]

    def on_train_end(self, logs=None):
        weights = np.concatenate([weight.ravel() for weight in self.model.get_weights()])
        with open("end.json", "w") as file:
            sums = self.seen["sums"].tolist()
            json.dump({**self.seen, "sums": sums, "logs": logs, "weights": weights.tolist()}, file)

def build(context):
    draw = np.random.default_rng(context.args["pattern"])
    x = draw.normal(size=(240, 6)).astype("float32")
    y = (x.sum(axis=1) + draw.normal(size=240) * 2).astype("float32")
    layers = [keras.layers.Dense(32, "relu"), keras.layers.Dropout(0.3), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((6,)), *layers])
    model.compile(keras.optimizers.Adam(0.01), "mse")
    callbacks = [
        keras.callbacks.EarlyStopping("val_loss", patience=5, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=1, cooldown=1),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.97),
        keras.callbacks.ModelCheckpoint("best.keras", "val_loss", save_best_only=True),
        keras.callbacks.ModelCheckpoint("steps-{epoch:02d}.weights.h5", save_weights_only=True, save_freq=25),
        keras.callbacks.CSVLogger("log.csv"),
        Counts(),
    ]
    return {"model": model, "train": (x[:200], y[:200]), "validation": (x[200:], y[200:]), "callbacks": callbacks}
"""


@dataclass
class Training:
    """A training in a folder of its own, with one run for each worker."""

    folder: Path
    kind: str
    pattern: int
    runs: list[Run] = field(default_factory=list)

    def start(self) -> None:
        """Start or resume all workers, and wait until they have begun."""
        count = KINDS[self.kind]
        workers = [f"127.0.0.1:{port}" for port in free_ports(count)]
        commands = []
        for index in range(count):
            (place := self.folder / str(index)).mkdir(parents=True, exist_ok=True)
            (place / "train.py").write_text(PROGRAM)
            environment = dict(os.environ)
            if count > 1:
                task = {"type": "worker", "index": index}
                environment["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
            words = ["resume", self.runs[index].id] if self.runs else self._words(place)
            pipe = subprocess.PIPE
            command = [*COMMAND, *words, "--detach"]
            commands.append(subprocess.Popen(command, cwd=place, env=environment, stdout=pipe, stderr=pipe, text=True))
        outputs = [command.communicate(timeout=SECONDS) for command in commands]
        if any(command.returncode for command in commands):
            raise SystemExit(f"cannot start: {outputs}")
        if not self.runs:
            from gputui.engine import runs

            self.runs = [runs.find(output.strip()) for output, _ in outputs]

    def _words(self, place: Path) -> list[str]:
        (place / "preset.yaml").write_text(
            f"schema_version: 1\nworkload: {{entry: 'train.py:build', args: {{pattern: {self.pattern}}}}}\n"
            f"input: {{batch_size: {20 // KINDS[self.kind]}}}\ntrain: {{epochs: 60, seed: {self.pattern}}}\n"
            f"run: {{checkpoint: 7, save_model: true}}\nstrategy: {{kind: {self.kind}}}\n"
            f"device: {{logical_devices: {2 if self.kind == 'mirrored' else 1}}}\n"
        )
        return ["--preset", "preset.yaml"]

    def trains(self) -> bool:
        return any(run.alive("engine") or run.alive("trainer") for run in self.runs)

    def begun(self, starts: int) -> bool:
        """Wait until all workers have begun the start number `starts`, counted from 1: all is built, and no step has
        run. Returns False if they have ended before.
        """
        while self.trains():
            if all(len(happened(run, "started")) >= starts for run in self.runs):
                return True
            time.sleep(LOOK_SECONDS)
        return False

    def wait(self) -> None:
        until = time.monotonic() + SECONDS
        while self.trains():
            if time.monotonic() > until:
                raise SystemExit(f"{[run.path for run in self.runs]} have not ended within {SECONDS:.0f} s")
            time.sleep(LOOK_SECONDS)

    def kill(self, seconds: float) -> str:
        """Wait so many seconds, then kill the engine or the trainer of a worker. Returns which; empty if all have ended
        before.
        """
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if not self.trains():
                return ""
            time.sleep(LOOK_SECONDS / 4)
        run, role = random.choice(self.runs), random.choice(("engine", "trainer"))
        with contextlib.suppress(ProcessLookupError, KeyError):
            os.kill(run.status[f"{role}_pid"], signal.SIGKILL)
            return role
        return ""

    def state(self) -> str:
        """Return `ok` if all workers have ended so, else the state of one that has not."""
        return next((run.state for run in self.runs if run.state != "ok"), "ok")


def content(folder: Path, run: Run) -> dict[str, bytes]:
    """Return what a worker has left, by name: files as their bytes, a .keras file by its parts.

    A .keras file holds the time at which it was written; the other parts are compared byte by byte.
    """
    parts = {
        path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in (".json", ".csv", ".h5")
    }
    for path in (folder / "best.keras", run.path / "model.keras"):
        if path.exists():
            with zipfile.ZipFile(path) as archive:
                names = [name for name in archive.namelist() if name != "metadata.json"]
                parts |= {f"{path.name}/{name}": ADDRESS.sub(b"", archive.read(name)) for name in names}
    assert run.result is not None
    return parts | {"last step": str(happened(run, "epoch")[-1]["step"]).encode()}


def undisturbed(folder: Path, kind: str, pattern: int) -> tuple[list[dict[str, bytes]], float, str]:
    """Return what each worker of an undisturbed training has left, the seconds from its begin to its end, and a line
    about it.
    """
    training = Training(folder, kind, pattern)
    training.start()
    training.begun(1)
    began = time.monotonic()
    training.wait()
    seconds = time.monotonic() - began
    if training.state() != "ok":
        raise SystemExit(f"the undisturbed training is {training.state()}: {training.runs[0].path}")
    left = [content(folder / str(index), run) for index, run in enumerate(training.runs)]
    end = json.loads(left[0]["end.json"])
    best = min(range(len(end["losses"])), key=end["losses"].__getitem__) + 1
    line = f"{kind}, pattern {pattern}: ends after epoch {len(end['losses'])}, best in epoch {best}, {seconds:.1f} s"
    return left, seconds, line


def differences(training: Training, expected: Sequence[dict[str, bytes]]) -> list[str]:
    """Return a line for each file that differs from that of the undisturbed training."""
    if training.state() != "ok":
        return [f"it has ended as {training.state()}"]
    lines = []
    for index, (run, whole) in enumerate(zip(training.runs, expected, strict=True)):
        left = content(training.folder / str(index), run)
        names = sorted(left.keys() | whole.keys())
        lines += [f"worker {index}: {name} differs" for name in names if left.get(name) != whole.get(name)]
    return lines


def one(
    training: Training, kills: int, seconds: float, expected: Sequence[dict[str, bytes]]
) -> tuple[list[str], list[str]]:
    """Train with up to `kills` kills. Returns a line for each fault, and what was killed, each with the step from which
    it was resumed.
    """
    killed: list[str] = []
    training.start()
    starts = 1
    while len(killed) < kills and training.begun(starts) and (role := training.kill(random.uniform(0, seconds))):
        training.wait()
        if training.state() == "ok":
            break
        if not all(any(run.file("checkpoints").glob("step-*")) for run in training.runs[:1]):
            return [], ["before the first checkpoint"]
        training.start()
        starts += 1
        training.begun(starts)
        killed.append(f"{role}, from {happened(training.runs[0], 'started')[-1]['resumed_at_step']}")
    training.wait()
    return differences(training, expected), killed


@contextlib.contextmanager
def servers(folder: Path) -> Iterator[None]:
    """A context in which engines and trainers are forked from a process that has imported TensorFlow, with a home of
    its own.
    """
    os.environ |= {"GPUTUI_HOME": str(folder / "home"), "CUDA_VISIBLE_DEVICES": "-1"}
    (place := folder / "engines").mkdir()
    for socket in forked_engines.served(place):
        os.environ |= {"PYTHONPATH": str(forked_engines.HERE / "site"), forked_engines.ADDRESS: str(socket)}
        yield


def carry_out(arguments: argparse.Namespace, folder: Path) -> int:
    wrong, all_killed, compared = 0, Counter[str](), 0
    for kind in arguments.kinds:
        whole = {}
        for pattern in range(min(PATTERNS, arguments.count)):
            whole[pattern] = undisturbed(folder / kind / f"whole{pattern}", kind, pattern)
            print(whole[pattern][2], flush=True)
        number = kills = 0
        while number < arguments.count:
            expected, seconds, _ = whole[number % len(whole)]
            training = Training(folder / kind / f"{number}-{kills}", kind, number % len(whole))
            kills += 1
            lines, killed = one(training, arguments.kills, seconds, expected)
            if killed in ([], ["before the first checkpoint"]):
                continue  # nothing was resumed: another one takes its place
            number += 1
            compared += sum(map(len, expected))
            all_killed.update(text.split(",")[0] for text in killed)
            wrong += bool(lines)
            print(f"{kind} {number}: killed {'; '.join(killed)}: {'; '.join(lines) or 'the same'}", flush=True)
    print(f"{arguments.count} trainings of each kind, killed: {dict(all_killed)}")
    print(f"{compared} files and figures compared; trainings that differ: {wrong}")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", help="a new folder for all files, which are otherwise removed")
    arguments = parser.parse_args()
    arguments.kinds = arguments.kinds.split(",")
    if unknown := set(arguments.kinds) - KINDS.keys():
        parser.error(f"--kinds: {', '.join(unknown)} is none of {', '.join(KINDS)}")
    random.seed(arguments.seed)
    with contextlib.ExitStack() as stack:
        if arguments.keep:
            (folder := Path(arguments.keep).absolute()).mkdir(parents=True)
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(servers(folder))
        return carry_out(arguments, folder)


if __name__ == "__main__":
    sys.exit(main())
