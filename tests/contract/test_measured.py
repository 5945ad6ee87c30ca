"""What commands that measure do and say on planted trainings: each trial in its order, then all that is printed.

A scenario is a line of a table: a command, how fast each training is, what dies, and when it is stopped or killed. The
texts of a kind of measurement are one file of golden/measured/.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from tests.contract.conftest import Golden
from tests.doors.engine import (
    Gpu,
    Judge,
    Machine,
    Options,
    Preset,
    Proof,
    ProofError,
    Record,
    Trial,
    checks,
    copies,
    folder,
    presets,
    proof_process,
    proof_sentences,
    proof_start,
    resource_limits,
    sweep_record,
    this_machine,
    trial_preset,
)
from tests.doors.engine import proof_request_Request as Request
from tests.doors.tui import PLAIN, FollowOptions, drawing_proof, measuring, plain
from tests.doors.tui import printing_proof_ProofLines as ProofLines
from tests.doors.tui import tui_cli as cli
from tests.support import proving, recorded
from tests.support.proving import HERE, Figures, Planted, PlantedBench
from tests.tune.test_rate import curve

MIB = 2**20


class Killed(BaseException):
    """Raised where the process of a measurement is killed."""


@dataclass
class Clock:
    """The time since the start of the machine, which only trials pass."""

    now: float = 1000.0

    def gettime(self, which: int, real: Callable[[int], float] = time.clock_gettime) -> float:
        return self.now if which == time.CLOCK_BOOTTIME else real(which)


@dataclass(frozen=True)
class Scenario:
    """The commands are given one after another. The numbers of trials begin at 1."""

    about: str
    commands: Sequence[str]
    figures: Figures
    seconds: Callable[[int], float] = lambda number: 10.0
    gpus: int = 0
    disturbed: Mapping[int, str] = field(default_factory=dict)  # by which programs, of trials
    stop_at: int = 0  # the trial in which a person asks the measurement to stop
    kill_at: int = 0  # the trial in which its process is killed
    whole: bool = False  # all chapters of the result are looked at
    brief: bool = False  # only the result is looked at, without the command and the trials
    look_at: int = 0  # the trial during which the head of its screen is looked at
    together: Callable[[int], tuple[float, float]] = lambda copies: (5.0, 0.0)  # of copies: common seconds, speed


@dataclass
class Site:
    """Carries out measurements in this process, where commands start them."""

    scenario: Scenario
    clock: Clock = field(default_factory=Clock)
    number: int = 0  # of the latest trial
    preset: dict[str, Any] | None = None  # with whose values those of the trials are compared
    shown: ProofLines | None = None  # the lines of the command that follows
    copies: dict[str, threading.Barrier] = field(default_factory=dict)  # all copies train before one has ended

    def start(self, proof: Proof, *_given: Any) -> Any:
        def ended() -> int:
            try:
                proof_process.main(proof.path)
            except Killed:
                print("-- killed")
            return 0

        return SimpleNamespace(poll=ended)

    def lines(self, *given: Any) -> ProofLines:
        """Those of the command, which are shown before each trial, too."""
        self.shown = ProofLines(Console(file=StringIO()), False) if self.scenario.brief else ProofLines(*given)
        return self.shown

    def together(self, runs: Sequence[Any]) -> tuple[float, float, float, float]:
        common, speed = self.scenario.together(len(runs))
        return 0.0, common, speed, speed / 32

    def bench(self, path: Path, _from: Path, seed: int, seconds: float, _here: Machine, stop: Any, _beside: Any) -> Any:
        return Bench(self, path, seed, seconds, stop)


class Bench(PlantedBench):
    """Prints each trial: its options that differ from the preset, its time, and the most that it may take."""

    def __init__(self, site: Site, path: Path, seed: int, seconds: float, stop: Any) -> None:
        super().__init__(path, site.scenario.figures)
        self._site, self.seed, self.measure_seconds, self.stop = site, seed, seconds, stop

    def _carried_out(
        self, prepare: Callable[[], Preset], side: str, repeat: int, judge: Judge | None = None, timed: bool = True
    ) -> Trial:
        site, scenario = self._site, self._site.scenario
        copies = int(side[1:]) if re.fullmatch(r"c\d+", side) else 1
        with self._starting:
            site.number += 1
            number = site.number
            barrier = site.copies.setdefault(side, threading.Barrier(copies, timeout=60))
        with self._starting:
            self._look(Proof(self.folder.parent).record, number == scenario.look_at)
        if number == scenario.kill_at:
            raise Killed
        if number == scenario.stop_at:
            self.stop.ask()
        began = site.clock.now
        if copies > 1:
            barrier.wait()
        self.seconds_of = lambda _before: scenario.seconds(number)
        self.figures = lambda options, _before: scenario.figures(options, number)
        row = super()._carried_out(prepare, side, repeat, judge, timed)
        row.disturbed = scenario.disturbed.get(number, "")
        with self._starting:
            site.clock.now = began + row.seconds
            described = f"\0at {began - 1000:.0f} s: {self._described(self.asked[-1])}\0"
            if not scenario.brief:
                print(described)
        return row

    def _described(self, options: Options) -> str:
        site = self._site
        if site.preset is None:
            preset = Proof(self.folder.parent).request.baseline().options
            site.preset = preset.values() | {"train.decay_steps": options.train.decay_steps}
        own = trial_preset.OWN - {"train.seed"}
        changed = {key: of for key, of in options.values().items() if of != site.preset[key] and key not in own}
        train, run = options.train, options.run
        steps = "" if train.steps_per_epoch is None else f" of {train.steps_per_epoch} steps"
        how = f"{train.epochs} epochs{steps}"
        how = how if run.measure_seconds is None else f"{run.measure_seconds:g} s"
        most = "" if isinstance(run.max_minutes, str) else f" (at most {60 * (run.max_minutes or 0):.0f} s)"
        return f"{how}{most}" + (f", {proof_sentences.changes(changed)}" if changed else "")

    def _look(self, record: Record, at_screen: bool) -> None:
        if self._site.shown is not None:
            self._site.shown.show(record)
        for row in drawing_proof.head(record, 100, PLAIN) if at_screen else ():
            print(f"  |{plain(row).rstrip()}")


@pytest.fixture
def carried_out(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Callable[[Scenario], str]:
    """Carries out the commands of a scenario, and returns what was trained and printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(signal, "signal", lambda *_given: None)
    monkeypatch.setattr(resource_limits, "memory", lambda: resource_limits.Memory(16 * 2**30, 12 * 2**30))
    monkeypatch.setattr(resource_limits, "ceilings", lambda: resource_limits.Ceilings())

    def of(scenario: Scenario) -> str:
        site, text = Site(scenario), f"==== {scenario.about}\n"
        here = dataclasses.replace(HERE, gpus=gpus(scenario.gpus), no_gpu_reason="" if scenario.gpus else "no GPU")
        with monkeypatch.context() as patched:
            patched.setattr(time, "clock_gettime", site.clock.gettime)
            patched.setattr(this_machine, "read", lambda: here)
            patched.setattr(proving, "HERE", here)
            patched.setattr(proof_process, "TrialRunner", site.bench)
            patched.setattr(copies, "together", site.together)
            patched.setattr(measuring, "ProofLines", site.lines)
            patched.setattr(folder, "start", site.start)
            patched.setattr(proof_start, "start", site.start)
            for words in scenario.commands:
                code = cli.run([*words.split(), *(["--details"] if scenario.whole else [])])
                printed = capsys.readouterr()
                out = printed.out.partition("\n")[2] if scenario.brief else f"$ gputui {words}\n{printed.out}"
                text += out + (f"--- errors\n{printed.err}" if printed.err else "")
                text += f"--- {code}\n"
        for file in sorted(tmp_path.glob("*.yaml")):
            values, before, own = presets.resolve(file.name).options.values(), site.preset or {}, trial_preset.OWN
            saved = {key: value for key, value in values.items() if value != before.get(key) and key not in own}
            lines = [line.strip() for line in file.read_text().splitlines() if "# tuned" in line]
            text += "".join(f"{file.name}: {line}\n" for line in (proof_sentences.changes(saved), *lines))
            file.unlink()
        for proof in folder.proofs():
            text = text.replace(proof.id, "PROOF")
        shutil.rmtree(home, ignore_errors=True)
        text = re.sub(r"( \.\.\.,? ?[^\n]*)\n\0", r"\1 | ", text).replace("\0\n", " -> ").replace("\0", "")
        return re.sub(r"(?m) +$", "", text.replace(str(home), "HOME"))

    return of


def gpus(count: int) -> tuple[Gpu, ...]:
    return tuple(Gpu(index, f"GPU-{index}", "a GPU", (9, 0), 80 * 2**30) for index in range(count))


# ---- scaling ---------------------------------------------------------------------------------------


def by_replicas(speeds: Mapping[int, float], drift: Sequence[float] = (1.0,), **more: Any) -> Figures:
    """So many samples a second with so many replicas, times the drift in turn; `more` are fields by replicas."""

    def figures(options: Options, number: int) -> Planted:
        replicas = checks.replicas(options, proving.HERE)
        fields = {name: of[replicas] for name, of in more.items() if replicas in of}
        return Planted(speeds[replicas] * drift[(number - 1) % len(drift)], **fields)

    return figures


WELL = {1: 1000.0, 2: 1900.0, 4: 3400.0}
WELL_SCALED = by_replicas(WELL)


def dies(outcome: Any, *numbers: int, figures: Figures = WELL_SCALED) -> Figures:
    """The trials with these numbers end so."""

    def made(options: Options, number: int) -> Planted:
        planted = figures(options, number)
        return dataclasses.replace(planted, outcome=outcome) if number in numbers else planted

    return made


FOUR = "scaling --preset quickstart --set logical_devices=4 --anyway"
COPIES = "scaling --preset quickstart --anyway --copies"
FALLING = (1.0, 1.0, 1.0, 0.8, 0.8, 0.8, 0.6, 0.6, 0.6)
SCALING = (
    Scenario(
        "a machine that gets slower: each is compared within its round",
        [f"{FOUR} --replicas 2,4 --minutes 60"], by_replicas(WELL, FALLING), look_at=5,
        whole=True,
    ),
    Scenario(
        "strong scaling that waits for the input",
        [f"{FOUR} --keep global --set batch_size=64"],
        by_replicas({1: 1000.0, 2: 1500.0, 4: 1700.0}, input_wait={1: 0.1, 2: 0.4, 4: 0.6}),
        whole=True,
    ),
    Scenario(
        "steps that take longer for another reason than the input",
        [f"{FOUR} --replicas 2"],
        by_replicas({1: 1000.0, 2: 1200.0}, (1.0, 1.04, 0.99, 1.01), input_wait={1: 0.1, 2: 0.12}),
        whole=True,
    ),
    Scenario("four replicas run out of memory in the second round", [FOUR], dies("oom", 4), whole=True),
    Scenario(
        "one replica and two crash once, and four twice; stopped and resumed", [FOUR, "scaling --resume --anyway"],
        dies("stopped", 8, figures=dies("crashed", 1, 3, 5, 6, figures=by_replicas(WELL, (1.0, 1.02, 1.03)))),
        look_at=6, stop_at=8,
    ),
    Scenario("one replica ends with an error", [FOUR], dies("error", 1)),
    Scenario("several replicas never train", [FOUR], dies("oom", 2, 3)),
    Scenario(
        "the time allows no third round", [f"{FOUR} --minutes 2"], WELL_SCALED, lambda number: 10.0 + number,
        look_at=4,
    ),
    Scenario("the time allows a third round just so", [f"{FOUR} --minutes 1.51"], WELL_SCALED),
    Scenario(
        "stopped in the second round, killed in the third",
        [FOUR, "scaling --resume --anyway", "scaling --resume --anyway", "scaling --resume --anyway"],
        dies("stopped", 5), stop_at=5, kill_at=8,
    ),
    Scenario("on two GPUs", ["scaling --preset quickstart --anyway"], WELL_SCALED, gpus=2, whole=True),
    Scenario(
        "two copies pay, and three no more than two", [f"{COPIES} 2,3 -o shared.yaml"],
        lambda options, number: Planted(1000.0, 0.2), gpus=1,
        together=lambda copies: (5.0, {1: 1000.0, 2: 1500.0, 3: 1505.0}[copies]),
        whole=True,
    ),
    Scenario(
        "copies do not pay on a CPU", [f"{COPIES} 2"], lambda options, number: Planted(1000.0),
        together=lambda copies: (5.0, {1: 1000.0, 2: 700.0}[copies]),
        whole=True,
    ),
    Scenario(
        "two copies train together for too short a time, and three just long enough", [f"{COPIES} 2,3"],
        lambda options, number: Planted(1000.0), gpus=1,
        together=lambda copies: ({1: 5.0, 2: 2.49, 3: 2.5}[copies], 1000.0 * copies**0.1),
        whole=True,
    ),
)  # fmt: skip


# ---- searches --------------------------------------------------------------------------------------


def device_speed(options: Options) -> float:
    """Rises with the batch size up to 64, is a fifth more with 4 steps together, and a tenth less with XLA."""
    batch, together = options.input.batch_size, options.compile.steps_per_execution
    speed = min(1.01, 0.6 + batch / 160) if batch < 64 else 1.0 + (batch > 64) / 100
    return 1000 * speed * (1.2 if together >= 4 else 1.0) * (0.9 if options.compile.xla is True else 1.0)


def fast_input(options: Options, number: int) -> Planted:
    taken = (10 + options.input.batch_size) * MIB
    return Planted(samples_per_second=device_speed(options), peak_memory_bytes=taken, loss=2.0)


def slow_input(options: Options, number: int) -> Planted:
    """At most 700 samples a second, until they are cached."""
    at_most = 10_000.0 if options.input.one_batch or options.input.cache == "memory" else 700.0
    speed = device_speed(options)
    return Planted(samples_per_second=min(at_most, speed), input_wait=max(0.0, 1 - at_most / speed), loss=2.0)


def learning(options: Options, number: int) -> Planted:
    """Four times as fast with batches of 128, which learn worse unless the learning rate is larger, too."""
    batch, together = options.input.batch_size, options.compile.steps_per_execution
    learns = batch <= 64 or options.train.learning_rate > 0.004
    speed = 1000 * batch / 32 * (1.2 if together >= 4 else 1.0)
    return Planted(samples_per_second=speed, loss=0.5 if learns else 0.6)


def with_steps(speeds: Mapping[int, float], **more: Any) -> Figures:
    """So many samples a second with so many steps together."""
    return lambda options, number: Planted(speeds[options.compile.steps_per_execution], **{"loss": 2.0} | more)


def limited(most: float, base: int = 600, each: float = 2.0, growth: Callable[[int], float] = lambda _: 0) -> Figures:
    """A batch takes so many MiB, and more than `most` run out; the speed hardly rises from 500 on."""

    def figures(options: Options, number: int) -> Planted:
        batch = options.input.batch_size
        taken = base + each * batch + growth(batch)
        if taken > most:
            return Planted(outcome="oom", error=f"out of memory at batch size {batch}")
        return Planted(1000 * batch / (batch + 20), peak_memory_bytes=round(taken) * MIB, loss=2.0)

    return figures


def little_each(together: float) -> Figures:
    """Steps in one execution and a faster input are within the spread of trials alone; all at once they are not."""

    def figures(options: Options, number: int) -> Planted:
        steps, given = options.compile.steps_per_execution, options.input
        faster = steps == 4 and given.parallel_calls == "auto" and given.prefetch == "auto"
        speed = together if faster else {1: 1.0, 4: 0.965}[steps] * (1.015 if given.prefetch == "auto" else 1.0)
        return Planted(samples_per_second=400 * speed, input_wait=0.2, loss=2.0)

    return figures


def with_overhead(*device_ms: float, **more: Any) -> Figures:
    """Steps take the device's time, with XLA and without, first in float32, or a millisecond of Python's if longer."""
    return lambda options, number: Planted(
        32_000 / max(
            device_ms[2 * (options.precision.policy != "float32") + (options.compile.xla is True)],
            1 / options.compile.steps_per_execution,
        ), loss=2.0, **more,
    )  # fmt: skip


def by_batch(speeds: Mapping[int, float], too_large: int = 9999) -> Figures:
    """So many times as fast with a batch; a sample takes 10 MiB, and from `too_large` on it runs out of memory."""
    return lambda options, number: Planted(
        1000 * speeds.get(options.input.batch_size, 1.0), loss=2.0,
        outcome="oom" if options.input.batch_size >= too_large else "ok",
        peak_memory_bytes=options.input.batch_size * 10 * MIB,
    )  # fmt: skip


SMALL = "--preset quickstart --set batch_size=32 --set train.seed=1 --anyway"
TUNE, FIT = f"tune {SMALL}", f"fit-batch {SMALL}"
SLOW = "--set parallel_calls=off --set prefetch=off --set cache=off"
LEARN = f"{TUNE} --only batch_size --largest-batch 128"
GROW = f"{FIT} --set batch_size=64 --largest-batch"
SEARCHES = (
    Scenario("all options, the input is no hindrance", [f"{TUNE} -o fastest.yaml"], fast_input, look_at=12, whole=True),
    Scenario("a slow input", [f"{TUNE} {SLOW}"], slow_input),
    Scenario("batches that learn worse", [f"{LEARN} -o fastest.yaml"], learning),
    Scenario(
        "the learning rate follows the batch",
        [f"{LEARN} --learning-rate linear --warmup-steps 7 -o fastest.yaml"], learning,
        brief=True,
    ),
    Scenario("worse losses are allowed", [f"{LEARN} --allow-worse-loss"], learning, brief=True),
    Scenario("stopped: the fastest learn worse", [LEARN], dies("stopped", 8, figures=learning), stop_at=8, brief=True),
    Scenario(
        "no time for the pairs, then more minutes",
        [f"{LEARN} --minutes 1.5 -o fastest.yaml", "tune --resume --minutes 3 --anyway", "tune --resume --minutes 3"],
        learning, lambda number: 34.0 if number == 1 else 12.0,
    ),
    Scenario(
        "killed, stopped and resumed",
        [f"{TUNE} --only steps_per_execution", *["tune --resume --anyway"] * 2],
        dies("stopped", 6, figures=with_steps({1: 10_000.0, 4: 13_000.0, 16: 14_000.0, 31: 12_000.0})),
        kill_at=4, stop_at=6,
    ),
    Scenario(
        "changes that run out of memory, crash or end with an error",
        [f"{TUNE} --only steps_per_execution --only xla --only threads"],
        lambda options, number: Planted(
            1000.0 + number, loss=2.0, outcome="oom" if options.compile.steps_per_execution > 1
            else "crashed" if options.compile.xla is True
            else "error" if options.device.inter_op_threads == 1 else "ok",
        ),
    ),
    Scenario("the preset crashes once", [f"{TUNE} --only xla"], dies("crashed", 1, figures=fast_input)),
    Scenario(
        "the preset ends with an error, which is then repaired", [f"{TUNE} --only xla", "tune --resume --anyway"],
        dies("error", 1, figures=fast_input),
    ),
    Scenario("a trial for the loss and one of a pair crash", [LEARN], dies("crashed", 8, 13, figures=learning)),
    Scenario(
        "pairs that differ too much are followed by more", [f"{TUNE} --only steps_per_execution --minutes 30"],
        lambda options, number: Planted(
            (10_000.0 if options.compile.steps_per_execution == 1 else 13_000.0) * (1.0, 1.12, 0.95, 1.03)[number % 4]
        ),
    ),
    Scenario(
        "what chance has rejected is measured again", [f"{TUNE} --only steps_per_execution"],
        lambda options, number: with_steps(
            {1: 10_000.0, 4: 13_000.0, 16: 14_000.0, 31: 9840.0 if number == 3 else 12_000.0}
        )(options, number),
    ),
    Scenario(
        "the largest batch within a limit", [f"{FIT} --memory-gb 4 --largest-batch 100000"], limited(4000), whole=True,
    ),
    Scenario(
        "a batch that takes more than small ones have told", [f"{FIT} --memory-gb 4 --largest-batch 100000"],
        limited(3000, growth=lambda batch: 700 if batch >= 700 else 0),
    ),
    Scenario(
        "a preset that runs out of memory", ["fit-batch --preset quickstart --set batch_size=6000 --anyway -o f.yaml"],
        limited(4000),
    ),
    Scenario("not even a batch of one fits", [f"{FIT} --memory-gb 0.1"], limited(9999), whole=True),
    Scenario("a preset above the limit", [f"{TUNE} --memory-gb 0.6"], limited(9999)),
    Scenario("a prediction", [f"{TUNE} --dry-run", f"{TUNE} --dry-run --memory-gb 1.4"], limited(9999), whole=True),
    Scenario("a prediction whose first trial runs out", [f"{TUNE} --dry-run"], limited(610)),
    Scenario(
        "a prediction for code that makes its own batches", [f"{TUNE} --dry-run"],
        lambda options, number: dataclasses.replace(
            limited(9999)(options, number), inapplicable={"input.batch_size": "your code makes the batches"}),
    ),
    Scenario(
        "a prediction whose second trial, of the preset's batch, runs out", [f"{TUNE} --dry-run --memory-gb 5.8"],
        limited(9999, growth=lambda batch: 9999 if batch >= 32 else 0),
    ),
    Scenario("nothing fits, and batches take alike", [f"{FIT} --memory-gb 0.1"], limited(9999, each=0.0), whole=True),
    Scenario(
        "a change that takes no more memory than the preset, which takes too much",
        [f"{TUNE} --only steps_per_execution --memory-gb 0.7"],
        lambda options, number: dataclasses.replace(limited(9999)(options, number), samples_per_second=1000.0 * (
            1.3 if options.compile.steps_per_execution > 1 else 1)), brief=True,
    ),
    Scenario(
        "pairs are slower than single trials", [f"{TUNE} --only steps_per_execution"],
        lambda options, number: Planted(10_000.0 * (1 if options.compile.steps_per_execution == 1 else
                                                    1.3 if options.run.measure_seconds == 2 else 0.1)),
    ),
    Scenario(
        "a gain that may be chance is measured once more, and the ceiling is near",
        [f"{TUNE} --only steps_per_execution"],
        lambda options, number: Planted((1030.0 if options.input.one_batch else 1000.0) * (
            1.06 if options.compile.steps_per_execution > 1 else 1) * (0.97, 1.0, 1.0, 1.0)[number % 4]), whole=True,
    ),
    Scenario(
        "the losses are not judged, as a training crashes twice", [LEARN], dies("crashed", 4, 5, figures=learning),
        brief=True,
    ),
    Scenario(
        "a training for the loss comes to its time limit", [LEARN], dies("timeout", 5, figures=learning), brief=True,
        whole=True,
    ),
    Scenario(
        "the fastest settings cannot be trained to the end", [LEARN],
        dies("oom", 5, figures=learning), brief=True,
    ),
    Scenario(
        "the fastest settings cannot be trained to the end, and worse losses are allowed",
        [f"{LEARN} --allow-worse-loss"], dies("oom", 5, figures=learning), brief=True,
    ),
    Scenario(
        "what is left out is not tried", [f"{TUNE} --only batch_size --only xla --leave xla --largest-batch 64"],
        fast_input,
    ),
    *(
        Scenario(
            f"near misses, {together} times as fast together",
            [f"{TUNE} {SLOW} --only steps_per_execution --only input --leave cache --leave prefetch_to_device "
             f"--minutes 30"], little_each(together), whole=True,
        )
        for together in (1.09, 0.98)
    ),
    Scenario(
        "on a GPU precision and XLA come before the steps in one execution, also where Python hides what they gain",
        [f"{TUNE} --set xla=off --only steps_per_execution --only precision --only xla --precision mixed_bfloat16"],
        with_overhead(0.5, 0.4, 0.3, 0.2, compute_capability=(9, 0)), gpus=1,
    ),
    Scenario(
        "XLA is also tried instead of the precision, with which it is slow",
        [f"{TUNE} --set xla=off --only precision --only xla --precision mixed_bfloat16"],
        with_overhead(2.0, 1.2, 1.6, 1.9),
    ),
    Scenario(
        "the time ends in the further pairs, which more minutes go on with",
        [f"{TUNE} --only steps_per_execution --minutes 8 -o fastest.yaml", "tune --resume --minutes 9 --anyway"],
        lambda options, number: Planted((1000.0 if options.compile.steps_per_execution == 1 else 7000.0) * (
            (1.0, 1.6, 0.8)[number % 3] if options.run.measure_seconds == 5 else 1)),
        lambda number: 34.0 if number == 1 else 12.0 if number < 4 else 90.0, whole=True,
    ),
    Scenario("a batch that grows while it gains", [f"{GROW} 4096"], by_batch({128: 1.5, 256: 1.95, 512: 2.04})),
    Scenario("a limit that is no power of two", [f"{GROW} 200"], by_batch({128: 1.5, 256: 2.0, 200: 1.5})),
    Scenario("smaller batches are faster", [f"{GROW} 4096"], by_batch({32: 1.2, 16: 1.32})),
    Scenario("between a batch and one that runs out of memory", [f"{GROW} 4096"], by_batch({96: 1.1}, 100)),
    Scenario(
        "nine tenths of the memory are taken", [f"{GROW} 4096 --memory-gb {gb}" for gb in (4.19, 3.15)],
        by_batch({128: 1.5, 256: 2.25, 352: 2.475}),
    ),
    Scenario(
        "the second trial of a prediction is as large as surely fits",
        [f"{TUNE} --set batch_size=64 --dry-run --{more}" for more in
         ("largest-batch 9000", "largest-batch 100", "memory-gb 4.2", "memory-gb 2.1", "memory-gb 1.36")],
        limited(9999, each=1.0), whole=True,
    ),
    *(
        Scenario(f"a prediction from {first}, where nothing can be trained", [
            f"{TUNE} --set batch_size={first} --dry-run"], limited(0), brief=True)
        for first in (64, 4)
    ),
    Scenario(
        "a preset just above a limit, and just within",
        [f"{TUNE} --only xla --memory-gb 0.69625446{digit}" for digit in "34"], limited(9999), brief=True,
    ),
    Scenario(
        "a smaller batch leaves a tenth of the memory free", [f"{FIT} --set batch_size=512 --memory-gb 1.048576"],
        limited(1100, base=700, each=1.0),
    ),
)  # fmt: skip

# ---- proofs ----------------------------------------------------------------------------------------


def ab(speeds: Sequence[float], *gains: float, **more: Any) -> Figures:
    """The side with 16 steps together is by these gains faster, pair by pair; the speeds of the other come in turn."""

    def figures(options: Options, number: int) -> Planted:
        pair = (number - 1) // 2
        gain = gains[pair % len(gains)] if options.compile.steps_per_execution == 16 else 0.0
        return Planted(speeds[pair % len(speeds)] * (1 + gain), **more)

    return figures


def changed(outcome: Any, figures: Figures = lambda options, number: Planted()) -> Figures:
    """The side with 16 steps together ends so."""

    def made(options: Options, number: int) -> Planted:
        planted = figures(options, number)
        is_changed = options.compile.steps_per_execution == 16
        return dataclasses.replace(planted, outcome=outcome) if is_changed else planted

    return made


def heavy(options: Options, number: int) -> Planted:
    """A training whose input is made cheap by a cache; the others of its remedies help nothing or fail."""
    cached = options.input.cache == "memory"
    if options.input.parallel_calls == "auto":
        return Planted(outcome="oom")
    if options.input.one_batch:
        return Planted(5000.0)
    return Planted((4000.0 if cached else 1000.0) * (1 + 0.004 * (number % 3)), 0.3 if cached else 0.8)


def slowing(options: Options, number: int) -> Planted:
    """The machine gets half as fast between two comparisons, so that the product of their gains is too large."""
    faster = (4.0 if options.input.cache != "off" else 1.0) * (2.0 if options.input.parallel_calls == "auto" else 1)
    return Planted(1000.0 * faster * (0.5 if number > 8 else 1.0), 0.6)


AB = "ab --preset quickstart --anyway --set steps_per_execution=16"
COST = "diagnose --preset input-heavy --anyway"
LOOP = f"{COST} --apply"
PROOFS = (
    Scenario(
        "faster", [AB, "proof latest -o better.yaml"], ab((1000.0, 1010.0, 990.0), 0.30, 0.32, 0.28), look_at=4,
        whole=True,
    ),
    Scenario("slower", [AB], ab((1000.0,), -0.30, -0.32, -0.28), brief=True),
    Scenario("no difference", [AB], ab((1000.0,), 0.019, 0.0191, 0.0189), brief=True),
    Scenario("undecided: few more pairs", [AB], ab((1000.0,), 0.10, 0.13, 0.07), brief=True),
    Scenario("undecided: too many more", [f"{AB} --repeats 4"], ab((1000.0,), 0.03, -0.2, 0.2, 0.05), look_at=8),
    Scenario("runs out of memory", [AB], changed("oom"), brief=True),
    Scenario("crashes twice", [AB], changed("crashed")),
    Scenario("both sides crash once", [AB], dies("crashed", 1, 4, figures=ab((1000.0,), 0.5))),
    Scenario("the preset crashes twice", [AB], dies("crashed", 1, 4, figures=ab((1000.0,), 0.5)), brief=True),
    Scenario("the preset runs out of memory twice", [AB], dies("oom", 1, 2)),
    Scenario(
        "some trials were disturbed", [AB], ab((1000.0,), 0.5), disturbed={1: "a game was running", 4: "it was hot"},
        brief=True,
    ),
    Scenario("stopped", [AB], dies("stopped", 4, figures=ab((1000.0,), 0.5)), stop_at=4),
    Scenario(
        "what is learnt changes, too", ["ab --preset quickstart --anyway --set batch_size=128"],
        lambda options, number: Planted(30.0 * options.input.batch_size, loss=1 + options.input.batch_size / 999),
        whole=True,
    ),
    Scenario(
        "two replicas instead of one", ["ab --preset quickstart --anyway --set logical_devices=2 --set kind=mirrored"],
        by_replicas({1: 1000.0, 2: 1700.0}),
        brief=True,
        whole=True,
    ),
    Scenario("remedies one by one", [f"{LOOP} -o better.yaml"], heavy, look_at=15, whole=True),
    Scenario("a machine that gets slower between two changes", [f"{LOOP} -o better.yaml"], slowing),
    Scenario("the time allows no second remedy", [f"{LOOP} --minutes 2"], heavy),
    Scenario(
        "the input costs nothing, and of two trials the slower one is diagnosed", [f"{COST} --repeats 2"],
        lambda options, number: Planted(950.0 if options.input.one_batch else 1000.0 + 10 * number, number / 100),
    ),
    Scenario("the training crashes once", [COST], dies("crashed", 1, figures=heavy)),
    Scenario("the training crashes twice", [LOOP], dies("crashed", 1, 2, figures=heavy)),
    Scenario("stopped in the first remedy", [LOOP], dies("stopped", 4, figures=heavy), stop_at=4),
    Scenario("advice alone", [f"{LOOP} --set cache=memory --set parallel_calls=auto --set parallel_reads=auto "
             "--set prefetch=auto"], lambda options, number: Planted(1000.0, 0.8)),
    Scenario("what the input costs", [COST],
             lambda options, number: Planted(2000.0 if options.input.one_batch else 1000.0 + number, 0.8), whole=True),
    Scenario("the profiled trial runs out of memory", [f"{COST} --profile"], dies("oom", 3, figures=heavy), whole=True),
)  # fmt: skip


# ---- range tests of the learning rate ------------------------------------------------------------------


def ramped(
    *losses: Callable[[float, int], float | None], best: float = 1e-2, ramp: Sequence[float | None] | None = None,
    **more: Any,
) -> Figures:  # fmt: skip
    """A ramp that suggests a bit less than `best`, and trainings with the loss of this rate and seed; None diverges."""

    def figures(options: Options, number: int) -> Planted:
        rate, seed = options.train.learning_rate, options.train.seed or 0
        if options.train.schedule == "ramp":
            return Planted(ramp=curve(best, 0.05) if ramp is None else ramp, **more)
        loss = losses[0](rate, seed)
        return Planted(loss=loss) if loss is not None else Planted(outcome="error", kind="nan", error="it diverges")

    return figures


RANGE = "tune --preset quickstart --set learning_rate=0.001 --set train.seed=1 --learning-rate-test --anyway"


def ramp_test(about: str, figures: Figures, settings: str = "") -> Scenario:
    return Scenario(about, [f"{RANGE} {settings}".strip()], figures, brief=True)


RATES_TESTED = (
    Scenario(
        "better", [f"{RANGE} -o tuned.yaml"], ramped(lambda rate, seed: 1.0 + seed / 50 if rate == 1e-3 else 0.5),
        whole=True, look_at=3,
    ),
    ramp_test("worse", ramped(lambda rate, seed: 0.5 if rate == 1e-3 else 0.6 + seed / 100)),
    ramp_test(
        "some more pairs would tell", ramped(lambda rate, seed: 1.0 if rate == 1e-3 else 0.8 + 0.04 * (seed % 3)),
    ),
    ramp_test(
        "no number of pairs would tell", ramped(lambda rate, seed: 1.0 if rate == 1e-3 else 0.5 + 0.5 * (seed % 3)),
        "--repeats 4",
    ),
    ramp_test("no difference", ramped(lambda rate, seed: 1.0)),
    ramp_test("the preset's rate is near", ramped(lambda rate, seed: 1.0), "--set learning_rate=0.0025"),
    ramp_test("the preset's rate is not so near", ramped(lambda rate, seed: 1.0), "--set learning_rate=0.00251"),
    ramp_test("diverges with one seed", ramped(lambda rate, seed: None if rate > 1e-3 and seed == 2 else 1.0)),
    ramp_test("both diverge with one seed", ramped(lambda rate, seed: None if seed == 3 else 1.0)),
    ramp_test("the preset diverges with two", ramped(lambda rate, seed: None if rate == 1e-3 and seed > 2 else 0.5)),
    ramp_test("the preset diverges", ramped(lambda rate, seed: None if rate == 1e-3 else 0.5)),
    ramp_test("losses below 0", ramped(lambda rate, seed: -1.0 if rate == 1e-3 else -2.0)),
    ramp_test("the loss falls nowhere", ramped(lambda rate, seed: 1.0, ramp=[2.0, 2.1] * 150)),
    ramp_test("it still falls at the end", ramped(lambda rate, seed: 1.0, ramp=curve(100.0, 0.05))),
    ramp_test("the ramp diverges soon", ramped(lambda rate, seed: 1.0, ramp=[2.0] * 9 + [None] * 291)),
    ramp_test(
        "the ramp diverges at once",
        ramped(lambda rate, seed: 1.0, ramp=[None], outcome="error", kind="nan", error="not finite"),
    ),
    ramp_test("the model keeps no loss", ramped(lambda rate, seed: 1.0, ramp=[None] * 300)),
    ramp_test("the ramp runs out of memory", ramped(lambda rate, seed: 1.0, outcome="oom")),
    ramp_test(
        "the optimizer is the code's own",
        ramped(lambda rate, seed: 1.0, inapplicable={"train.learning_rate": "your code has chosen the optimizer"}),
    ),
    ramp_test("no time for the pairs", ramped(lambda rate, seed: 1.0), "--minutes 0.25"),
    Scenario(
        "the time ends in the pairs", [f"{RANGE} --minutes 1"], ramped(lambda rate, seed: 0.5),
        lambda number: 8.0 * number,
    ),
    Scenario("a training that crashes twice", [RANGE], dies("crashed", 3, 4, figures=ramped(lambda rate, seed: 1.0))),
    Scenario(
        "a training that comes to its time limit", [RANGE],
        dies("timeout", 5, figures=ramped(lambda rate, seed: 1 + rate)),
    ),
    Scenario(
        "stopped in the pairs", [RANGE, "proof latest"], dies("stopped", 4, figures=ramped(lambda rate, seed: 1.0)),
        stop_at=4,
    ),
)  # fmt: skip


# ---- what is asked -----------------------------------------------------------------------------------


class Begun(ProofError):
    """In place of a process that carries out the measurement."""


def test_what_is_asked_is_refused_in_a_line_or_begun(
    home: Path, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def begin(request: Request, more: str = "") -> None:
        asked, sweep = given(request), request.sweep
        said = {name: value for name, value in asked.items() if name not in ("preset", "folder", "source", "seed")}
        kept = {name: new for name, new in request.baseline().changed().items() if as_shipped.get(name) != new}
        said |= {"kept": kept} if kept else {}
        cost = f" ({sweep_record.cost(sweep, 90.0)})" if sweep is not None else ""
        raise Begun(f"{measuring.budget(request)}{cost}: {json.dumps(said)}{more}")

    def follow(request: Request, how: FollowOptions, **more: Any) -> int:
        followed = given(dataclasses.replace(how, anyway=False))
        if followed:
            begin(request, f" {json.dumps(followed)}")
        return measuring.measure(request, how, **more)

    def answer(question: str) -> list[str]:
        count, _, words = question.partition(" GPUs: gputui ")
        if "latest --apply" in words:  # the trials of later questions are then estimated by it
            recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=13)
        here = dataclasses.replace(HERE, gpus=gpus(int(count)), no_gpu_reason="" if int(count) else "no GPU")
        monkeypatch.setattr(this_machine, "read", lambda: here)
        assert cli.run([*words.split(), *([] if words.startswith("sweep") else ["--anyway"])]) == 2
        printed = capsys.readouterr()
        text: str = printed.out + printed.err
        return text.replace(str(tmp_path), "HERE").splitlines()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(folder, "start", lambda proof, *_: begin(proof.request))
    for module in ("diagnose", "tune"):
        monkeypatch.setattr(f"gputui.tui.commands.{module}.measure", follow)
    as_shipped = presets.resolve("quickstart").changed()
    golden.answers("measured/asked.txt", answer)


def given(of: Any) -> Any:
    """The values of a request that are not the usual ones."""
    if not dataclasses.is_dataclass(of):
        return [*map(given, of)] if isinstance(of, list | tuple) else of
    usual = {each.name: each.default for each in dataclasses.fields(of)}
    values = {name: getattr(of, name) for name in usual}
    return {name: given(of) for name, of in values.items() if of not in (usual[name], None, "", [], {}, ())}


KINDS = {"scaling": SCALING, "searches": SEARCHES, "proofs": PROOFS, "rates": RATES_TESTED}


@pytest.mark.parametrize(("name", "scenarios"), KINDS.items())
def test_what_is_measured_and_said(
    name: str, scenarios: Sequence[Scenario], carried_out: Callable[[Scenario], str], golden: Golden
) -> None:
    golden(f"measured/{name}.txt", "\n".join(map(carried_out, scenarios)))
