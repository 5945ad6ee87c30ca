"""What `gputui sweep` trains in which order, decides and says, on simulated trainings, and how lists show the sweep.

A scenario is a command, the metric of each training, what fails, and when the sweep is stopped or killed. An epoch
takes a minute, in which the sweep looks once.
"""

from __future__ import annotations

import random
import re
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from tests.contract.conftest import Golden
from tests.contract.test_measured import Clock, Killed, gpus
from tests.doors.engine import (
    ABSENT,
    DONE,
    RUNNING,
    STOPPED,
    Look,
    Measurement,
    Problem,
    Proof,
    Record,
    Run,
    SweepLoop,
    SweepTrial,
    folder,
    presets,
    proof_process,
    proof_start,
    runs_runs_folder,
    sweep_loop,
    sweep_record,
    this_machine,
)
from tests.doors.engine import preset_PresetError as PresetError
from tests.doors.engine import sweep_record_WAITING as WAITING
from tests.doors.tui import PLAIN, Entry, drawing_sweep, in_sweeps, measuring, plain
from tests.doors.tui import printing_proof_ProofLines as ProofLines
from tests.doors.tui import tui_cli as cli
from tests.support.proving import HERE
from tests.support.swept import Metric, Timed

RATE = "train.learning_rate"


@dataclass(frozen=True)
class Scenario:
    """`failing` has the outcome of trials and their error by their last three digits, `held` a trial in the queue."""

    about: str
    commands: Sequence[str]
    metric: Metric
    epochs: int = 1
    devices: int = 1
    name: str = "val_loss"
    failing: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    repaired: bool = False  # from the second command on nothing fails
    refused: str = ""  # the trial whose setting is refused
    held: str = ""
    without_effect: Mapping[str, str] = field(default_factory=dict)
    stop_at: int = 0  # the look at which a person asks the sweep to stop
    kill_at: int = 0
    brief: bool = False  # only the result, without the command and the trials
    whole: bool = False  # with all chapters of the result, and the view beside the list of runs


class Trainings(Timed):
    """Prints what is queued, stopped and let go."""

    def __init__(self, scenario: Scenario, clock: Clock) -> None:
        super().__init__(scenario.metric, scenario.epochs, devices=scenario.devices)
        self.scenario, self.clock, self.looks = scenario, clock, 0
        self.fails = set(scenario.failing)
        self.shown: ProofLines | None = None
        self.reasons = dict(scenario.without_effect)

    def say(self, text: str) -> None:
        if not self.scenario.brief:
            print(text)

    def measure(self, measurement: Measurement) -> None:
        record, self.stopping = measurement.record, measurement.stop
        SweepLoop(measurement.request, record, self, measurement.stop, lambda: self.pass_time(record)).run()

    def start(self, trial: SweepTrial) -> None:
        until = "" if trial.until is None else f" until epoch {trial.until}"
        self.say(f"at {self.clock.now - 1000:.0f} s: {trial.run[-3:]} {trial.part}: {sweep_record.name(trial)}{until}")
        if trial.run[-3:] == self.scenario.refused:
            raise PresetError([Problem("--set", None, RATE, "it does not fit")])
        super().start(trial)

    def look(self, trial: SweepTrial) -> Look:
        run = trial.run
        if run in self._queue:
            if run[-3:] == self.scenario.held:
                return Look("held", error="held by you")
            return Look(RUNNING if run in list(self._queue)[: self.devices] else WAITING, error="the device is in use")
        if run not in self.trained:
            return Look(ABSENT)
        done = self.trained[run]
        figures = [{self.scenario.name: self.metric(trial.changes, trial.seed, epoch)} for epoch in done]
        if run[-3:] in self.fails:
            cause, error = self.scenario.failing[run[-3:]]
            return Look("failed", figures, 60.0 * len(done), error, cause)
        state = DONE if len(done) == self.epochs else STOPPED
        return Look(state, figures, 60.0 * len(done), epoch_seconds=60.0 if done else None)

    def figures(self, trial: SweepTrial) -> Any:
        done = self.trained.get(trial.run, ())
        return [{self.scenario.name: self.metric(trial.changes, trial.seed, epoch)} for epoch in done]

    def stop(self, trial: SweepTrial) -> bool:
        self.say(f"-- {trial.run[-3:]} is asked to stop")
        return super().stop(trial)

    def let_go(self, trial: SweepTrial) -> None:
        self.say(f"-- {trial.run[-3:]} may train to its end by itself")

    def pass_time(self, record: Record) -> None:
        self.looks += 1
        if self.shown is not None:
            self.shown.show(folder.read_record(record.path.parent))
        if self.looks == self.scenario.kill_at:
            raise Killed
        if self.looks == self.scenario.stop_at:
            self.stopping.ask_by_person()
        mark = record.started_mark
        super().pass_time(record)
        record.started_mark = mark
        self.clock.now += self.seconds


@pytest.fixture
def swept(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Callable[[Scenario], str]:
    """Carries out the commands of a scenario, and returns what was trained and printed, and the row of the sweep."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(signal, "signal", lambda *_given: None)
    monkeypatch.setattr(this_machine, "read", lambda: replace(HERE, gpus=gpus(0), no_gpu_reason="no GPU"))

    def of(scenario: Scenario) -> str:
        clock, text = Clock(), f"==== {scenario.about}\n"
        trainings = Trainings(scenario, clock)

        def start(proof: Proof, *_given: Any) -> Any:
            def ended() -> int:
                try:
                    proof_process.main(proof.path)
                except Killed:
                    print("-- killed")
                return 0

            return SimpleNamespace(poll=ended)

        def lines(*given: Any) -> ProofLines:
            trainings.shown = ProofLines(Console(file=StringIO()), False) if scenario.brief else ProofLines(*given)
            return trainings.shown

        with monkeypatch.context() as patched:
            patched.setattr(time, "clock_gettime", clock.gettime)
            patched.setattr(sweep_loop, "measure", trainings.measure)
            patched.setattr(folder, "start", start)
            patched.setattr(proof_start, "start", start)
            patched.setattr(measuring, "ProofLines", lines)
            for words in scenario.commands:
                code = cli.run([*words.split(), *(["--details"] if scenario.whole else [])])
                printed = capsys.readouterr()
                out = printed.out.partition("\n")[2] if scenario.brief else f"$ gputui {words}\n{printed.out}"
                text += out + (f"--- errors\n{printed.err}" if printed.err else "")
                text += f"--- {code}\n"
                trainings.fails -= trainings.fails if scenario.repaired else set()
        for proof in folder.proofs():
            text = (text + as_listed(proof, scenario.whole)).replace(proof.id, "SWEEP")
        for file in sorted(tmp_path.glob("*.yaml")):
            options = presets.resolve(file.name).options
            text += f"{file.name}: learning_rate={options.train.learning_rate}, {file.read_text().splitlines()[0]}\n"
            file.unlink()
        shutil.rmtree(home, ignore_errors=True)
        text = re.sub(r"\n(at |SWEEP-|search: |proof on )", r" / \1", text.replace("\nat 0 s", "\n  at 0 s", 1))
        return re.sub(
            r"(?m) +$", "", re.sub(r" / (search: |proof on )", r"\n  \1", text).replace(str(tmp_path), "HERE")
        )

    return of


def as_listed(proof: Proof, whole: bool) -> str:
    """The row of the sweep in the list of runs, those of its trials, and the view beside the list."""
    record = proof.record
    sweep = record.sweep
    if sweep is None:
        return ""
    entries = [Entry(Run(runs_runs_folder() / trial.run), "ok", sweep=proof.id) for trial in sweep.trials]
    row, *below = in_sweeps(entries, {proof.id: record}, lambda name, count: True)
    best = [run.id[-3:] for run in getattr(row, "best_first", ())]
    lines = [
        f"{row.state}: {row.title.whole} | {row.title.within(40)} | {row.validation} | best first {' '.join(best)}",
        *(f"{entry.run.id[-3:]}: {entry.title.whole} | {entry.title.within(12)}" for entry in below[:2]),
    ]
    if not whole:
        return f"{lines[0]}\n"
    rows = drawing_sweep.in_brief(sweep, sweep_record.result(sweep), 70, 24, PLAIN)
    group = next(iter(sweep_record.in_order(sweep.trials, sweep.settings.higher)), [])
    rows += [[], *drawing_sweep.detail(sweep, group, 70, 6, PLAIN)]
    return "\n".join([*lines, *(f"  |{plain(row)}" for row in rows)]) + "\n"


def falling(noise: float = 0.01, lucky: float = 0.0) -> Metric:
    """The higher rate is better, in each later epoch more so; seed 7 is lucky with 1e-3."""

    def loss(changes: Mapping[str, Any], seed: int, epoch: int) -> float:
        rate: float = changes[RATE]
        luck = lucky if seed == 7 and rate == 0.001 else 0.0
        return 1 - 100 * rate + 0.5 / epoch + random.Random(f"{rate} {seed}").gauss(0, noise) - luck

    return loss


def diverging(seeds: Callable[[int], bool], *rates: float) -> Metric:
    """Without a finite loss at these rates with some seeds."""

    def loss(changes: Mapping[str, Any], seed: int, epoch: int) -> float | None:
        return None if changes[RATE] in rates and seeds(seed) else falling()(changes, seed, epoch)

    return loss


SWEEP = "sweep --preset quickstart --set epochs=1 --over"
PROVED = "--proof-seeds 3"
SEARCHED = "--proof-seeds 0"
THREE, FOUR = "learning_rate=1e-3,2e-3,3e-3", "learning_rate=1e-3,2e-3,3e-3,4e-3"
SIX = "learning_rate=1e-3,2e-3,3e-3,4e-3,5e-3,6e-3"
SCENARIOS = (
    Scenario("the best of three is proved", [f"{SWEEP} {THREE} {PROVED} -o best.yaml"], falling(), whole=True),
    Scenario(
        "the luckiest loses on fresh seeds", [f"{SWEEP} {THREE} {PROVED} --finalists 3"], falling(lucky=1.0),
    ),
    Scenario("two that cannot be told apart", [f"{SWEEP} learning_rate=1e-3,1.01e-3 {PROVED}"], falling(), brief=True),
    Scenario(
        "an option without any effect, and two seeds",
        [f"{SWEEP} learning_rate=1e-3,2e-3 --over batch_size=16,32 --seeds 2 {SEARCHED}"], falling(), whole=True,
    ),
    Scenario(
        "no option has an effect", [f"{SWEEP} {THREE} {PROVED}"], lambda changes, seed, epoch: 1 + seed % 7 / 100,
        brief=True,
    ),
    Scenario(
        "a higher metric is better, and two are equal", [f"{SWEEP} {THREE} --metric val_accuracy {SEARCHED}"],
        lambda changes, seed, epoch: min(0.9, 0.5 + 200 * changes[RATE]), name="val_accuracy", whole=True,
    ),
    Scenario(
        "the best of a higher metric loses on fresh seeds", [f"{SWEEP} {THREE} --metric val_accuracy {PROVED}"],
        lambda changes, seed, epoch: 3 - (falling(lucky=1.0)(changes, seed, epoch) or 0), name="val_accuracy",
        brief=True,
    ),
    Scenario(
        "bad trials end early", [f"{SWEEP} {SIX} --set epochs=4 --halving 1 --parallel 2 {SEARCHED}"], falling(),
        epochs=4, devices=2, whole=True,
    ),
    Scenario(
        "killed while two go on after their pauses",
        [f"{SWEEP} {SIX} --set epochs=4 --halving 1 --parallel 2 {SEARCHED}"], falling(), epochs=4, devices=2,
        kill_at=6, brief=True,
    ),
    Scenario(
        "the time is over after two of four, then there is more",
        [f"{SWEEP} {FOUR} --minutes 8.5 {PROVED}", "sweep --resume", "sweep --resume --minutes 12"], falling(),
    ),
    Scenario(
        "the time ends in the first training, then in the second",
        [f"{SWEEP} {FOUR} --set epochs=5 --set checkpoint=epoch --minutes 3 {SEARCHED}",
         *["sweep --resume --minutes 4"] * 2], falling(), epochs=5,
    ),
    Scenario(
        "stopped in the search, and killed in the proof",
        [f"{SWEEP} {THREE} {PROVED}", "sweep --resume", "sweep --resume"], falling(), stop_at=2, kill_at=6,
    ),
    Scenario(
        "one crashes for good, and one diverges", [f"{SWEEP} {FOUR} {SEARCHED}"], falling(),
        failing={"002": ("crashed", "the machine has restarted"), "003": ("nan", "the loss is not finite")},
    ),
    Scenario(
        "one diverges, and the sweep is killed in its proof", [f"{SWEEP} {THREE} {PROVED}", "sweep --resume"],
        falling(), failing={"001": ("nan", "the loss is not finite")}, kill_at=5,
    ),
    Scenario(
        "halved by the mean of the seeds, and not by a lucky one",
        [f"{SWEEP} {THREE} --set epochs=3 --halving 1 --seeds 3 {SEARCHED}"],
        lambda changes, seed, _: {0.001: 0.55, 0.002: 0.1 if seed == 7 else 0.8, 0.003: 0.5}[changes[RATE]], epochs=3,
    ),
    Scenario(
        "three fail with one cause, which is repaired", [f"{SWEEP} {SIX} {SEARCHED}", "sweep --resume"], falling(),
        failing=dict.fromkeys(("002", "003", "004", "005"), ("error", "no such file")), repaired=True,
    ),
    Scenario(
        "all run out of memory", [f"{SWEEP} {FOUR} {SEARCHED}"], falling(),
        failing=dict.fromkeys(("001", "002", "003", "004"), ("oom", "out of memory")),
    ),
    Scenario(
        "most run out of memory", [f"{SWEEP} {FOUR} {PROVED}"], falling(),
        failing=dict.fromkeys(("002", "003", "004"), ("oom", "out of memory")),
        brief=True,
    ),
    Scenario(
        "the best diverges with fresh seeds", [f"{SWEEP} {THREE} {PROVED} --finalists 3 -o best.yaml"],
        diverging(lambda seed: seed > 9, 0.003),
        brief=True,
    ),
    Scenario(
        "the others diverge with all seeds", [f"{SWEEP} {THREE} {PROVED}"], diverging(lambda seed: True, 0.002, 0.003),
        brief=True,
    ),
    Scenario(
        "settings that are drawn",
        [f"{SWEEP} learning_rate=1e-4..1e-1 --over weight_decay=0..0.1 --sampler random --trials 4 {SEARCHED}"],
        falling(),
    ),
    Scenario("a figure that the trials do not have", [f"{SWEEP} {THREE}"], falling(), name="loss"),
    Scenario(
        "an option that the code does not read", [f"{SWEEP} {THREE}"], falling(),
        without_effect={RATE: "your code has chosen the optimizer"},
    ),
    Scenario("a setting that is refused", [f"{SWEEP} {THREE} {SEARCHED}"], falling(), refused="002"),
    Scenario("a trial that is held in the queue", [f"{SWEEP} {THREE}"], falling(), held="002"),
)  # fmt: skip


def test_what_is_swept_and_said(swept: Callable[[Scenario], str], golden: Golden) -> None:
    golden("measured/sweeps.txt", "\n".join(map(swept, SCENARIOS)))
