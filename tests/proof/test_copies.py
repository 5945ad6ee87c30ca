"""Whether several copies of a training on one device pay: their settings, the seconds that count, and the answer."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.job.machine_gpus import Gpu, Machine
from gputui.engine.options import Options, options_json
from gputui.engine.presets import Preset
from gputui.engine.proof import folder, improved_preset, request
from gputui.engine.proof.markdown import as_markdown
from gputui.engine.proof.request import ProofError, Request
from gputui.engine.runs import Run, events
from gputui.engine.runs.parsing import EventWriter
from gputui.engine.scaling import copies
from gputui.engine.scaling.rounds import Rounds
from gputui.engine.trials import proof_sentences, scaling_sentences
from gputui.engine.trials.record import Record
from gputui.engine.trials.trial import Trial
from gputui.engine.trials.trial_runner import Judge
from gputui.tui import cli

from tests.support.front_door import gputui
from tests.support.proving import HERE, Planted, PlantedBench
from tests.support.proving import forked_trials as forked_trials

SMALL = "workload: {model: mlp, width: 0.1}\ninput: {batch_size: 32}\n"


def with_gpu(gigabytes: int = 24) -> Machine:
    return dataclasses.replace(HERE, cpus=8, gpus=(Gpu(0, "GPU-0", "a GPU", (9, 0), gigabytes * 2**30),))


def test_each_copy_gets_its_part_of_memory_and_cores_and_one_copy_all() -> None:
    one, two, four = copies.copies_settings(presets.defaults(), with_gpu(), [4, 2]).settings
    assert (one.copies, two.copies, four.copies) == (1, 2, 4)
    assert one.changes == {}
    assert two.changes["device.intra_op_threads"] == two.changes["device.inter_op_threads"] == 4
    assert four.changes["device.memory_limit_mb"] == pytest.approx(0.95 * 24 * 1024 / 4 - 768, abs=1)
    own = presets.defaults(["memory_limit_mb=2000", "intra_op_threads=1", "inter_op_threads=1"])
    assert copies.copies_settings(own, with_gpu(), [2]).settings[1].changes == {}, "what the preset sets stays"
    on_cpu = copies.copies_settings(presets.defaults(), HERE, ())
    assert [each.copies for each in on_cpu.settings] == [1, 2, 3]
    assert "device.memory_limit_mb" not in on_cpu.settings[1].changes
    assert on_cpu.shared == "the copies share the cores of one CPU"


@pytest.mark.parametrize(
    ("settings", "here", "counts", "message"),
    [
        (["strategy.kind=mirrored"], HERE, [2], "give --set strategy.kind=single"),
        (["logical_devices=2"], HERE, [2], "give --set device.logical_devices=1"),
        (["allocator=cuda_malloc_async"], with_gpu(), [2], "device.allocator=default"),
        (["memory_growth=true"], with_gpu(), [2], "device.memory_growth=auto"),
        ([], with_gpu(1), [2], "2 trainings leave each less than 64.0 MiB of GPU 0 .*: name fewer copies"),
        ([], HERE, [1], "one copy alone has nothing to compare with"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    settings: Sequence[str], here: Machine, counts: Sequence[int], message: str
) -> None:
    with pytest.raises(ProofError, match=message):
        copies.copies_settings(presets.defaults(settings), here, counts)


def test_only_the_seconds_count_in_which_all_copies_trained(tmp_path: Path) -> None:
    """The first trains alone at 100 steps/s until the second has warmed up; then each makes 40 steps/s."""
    first = reported(tmp_path / "1", {0: (0, None), 1: (90, 1.0), 2: (190, 1.0), 4: (270, 1.0), 6: (350, 1.0)})
    second = reported(tmp_path / "2", {1: (0, None), 2: (10, 1.0), 4: (90, 1.0), 8: (250, 1.0)})
    assert copies.together([first, second]) == (1002.0, 1006.0, 80 * 32, 80)
    alone = reported(tmp_path / "3", {7: (0, 1.0), 9: (90, 1.0)})
    begin, end, *speeds = copies.together([first, alone])
    assert end < begin
    assert speeds == [0, 0]
    assert copies.together([first, reported(tmp_path / "4", {0: (1, None)})]) == (0, 0, 0, 0)


def reported(path: Path, steps: Mapping[int, tuple[int, float | None]]) -> Run:
    """The run that has reported these steps and speeds, by seconds after 1,000."""
    path.mkdir()
    writer = EventWriter(path / "events.jsonl", path.name)
    for seconds, (step, speed) in steps.items():
        writer.emit(
            events.Progress(
                epoch=1, epochs=1, step=step, steps=9999, samples_per_second=speed, step_ms_p50=None,
                step_ms_p95=None, input_wait=None, loss=None, metrics={}, eta_seconds=None, samples=32 * step,
            ),
            1000.0 + seconds,
        )  # fmt: skip
    writer.close()
    return Run(path)


Speeds = Callable[[int], float]  # of all copies, by their number


def measured(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    speeds: Speeds,
    common_seconds: float = 5.0,
    oom_from: int = 99,
    here: Machine = HERE,
) -> Record:
    def as_planted(runs: Sequence[Run]) -> tuple[float, float, float, float]:
        return 0.0, common_seconds if len(runs) > 1 else 5.0, speeds(len(runs)), speeds(len(runs)) / 32

    def figures(options: Options, before: int) -> Planted:
        count = here.cpus // threads if isinstance(threads := options.device.intra_op_threads, int) else 1
        return Planted(speeds(1), outcome="oom" if count >= oom_from else "ok")

    monkeypatch.setattr(copies, "together", as_planted)
    asked = copies.copies_settings(presets.defaults(), here, [2, 3])
    made = request.of_opened("scaling", presets.defaults(), None, scaling=asked)
    made = Request.read(written(path, made))
    record, bench = folder.empty_record(path, made), PlantedBench(path / "trials", figures)
    Rounds(made, record, bench).measure()
    record.state = "done"
    record.write()
    return record


def written(path: Path, made: Request) -> Path:
    path.mkdir()
    (path / "request.json").write_text(made.to_json())
    return path / "request.json"


def test_the_number_that_pays_is_named_and_one_more_that_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = measured(tmp_path / "p", monkeypatch, lambda count: {1: 1000.0, 2: 1500.0, 3: 1505.0}[count])
    two = scaling_sentences.points(record)[1]
    assert (two.number, len(two.trials)) == (2, 3)
    assert two.speedup == pytest.approx(1.5)
    assert scaling_sentences.best_copies(record) is two
    assert proof_sentences.result(record).startswith("2 copies at once on one CPU train 1.50 times as many samples")
    assert "3 copies instead of 2: no difference" in "\n".join(scaling_sentences.remarks(record))
    assert scaling_sentences.in_brief(record) == "copies: 3 at 1.50 times, 2 at 1.50 times"
    record.started_t = 1_790_000_000.0
    with monkeypatch.context() as far_east:
        far_east.setenv("TZ", "JST-9")
        time.tzset()
        report = as_markdown(record)
    time.tzset()
    assert "| taken | 2026-09-21 14:13:20 UTC, in " in report
    assert "## Copies" in report
    assert "| copies | batch of each |" in report


def in_file(preset: Preset) -> dict[str, Any]:
    """The options as a run's folder has them."""
    return dict(json.loads(options_json.to_json(preset.options)))


def test_the_queue_follows_what_was_measured_on_these_gpus(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "proofs").mkdir(parents=True)
    preset, models, one = presets.defaults(), ["a GPU"], home / "proofs/20261127-010101-scaling"
    own = in_file(preset)
    assert copies.measured(own, 3, models) == "not measured: gputui scaling --copies 1,2,3"
    assert measured(home / "proofs/on-the-cpu", monkeypatch, lambda count: 1000.0 * count).changes_kept == {}
    record = measured(one, monkeypatch, {1: 1000.0, 2: 1500.0, 3: 1505.0}.__getitem__, here=with_gpu())
    assert record.changes_kept == {"run.per_gpu": 2, "device.visible": "free:1"}
    assert proof_sentences.result(record).endswith("; with run.per_gpu=2 the queue puts so many runs on a GPU")
    record.machine = {"gpus": models}
    record.write()
    assert copies.measured(own, 2, models) == f"{one.name} has measured it"
    assert copies.measured(own, 3, models) == f"{one.name} has measured that 2 pay most"
    for state in ("running", "stopped"):  # the last rounds may change it
        record.state = state
        record.write()
        assert copies.measured(own, 2, models).startswith("not measured")
    record.state = "done"
    record.write()
    for given, added in (("free:1", {}), ("free:2", {}), ("fits:1", {"device.visible": "free:1"}),
                         ("[0]", {"device.visible": "free:1"})):  # fmt: skip
        options = presets.defaults([f"device.visible={given}"]).options
        assert copies.changes_for_queue(record, options) == {"run.per_gpu": 2} | added, given
    assert copies.measured(own, 2, ["another GPU"]).startswith("not measured")
    assert copies.measured(in_file(presets.defaults(["batch_size=7"])), 2, models).startswith("not measured")
    improved_preset.save(folder.find(one.name), home / "shared.yaml")
    saved = (home / "shared.yaml").read_text()
    shared = presets.resolve(str(home / "shared.yaml"), ["train.learning_rate=0.5"])
    assert shared.options.run.per_gpu == 2
    assert copies.measured(in_file(shared), 2, models) == f"{one.name} has measured it"
    assert "2 copies at once on one GPU train 1.50 times as many samples" in saved.partition("\n")[0]
    record = measured(home / "proofs/slower", monkeypatch, lambda count: 1000.0 / count, here=with_gpu())
    assert record.changes_kept == {}
    record.machine = {"gpus": models}
    record.write()
    assert copies.measured(own, 2, models) == "slower has measured that sharing does not pay"


def test_copies_that_do_not_pay_or_do_not_fit_are_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = measured(tmp_path / "slower", monkeypatch, lambda count: 1000.0 / count)
    assert scaling_sentences.best_copies(record) is None
    assert proof_sentences.result(record).startswith("several copies at once do not pay: 2 train 0.50 times")
    record = measured(tmp_path / "oom", monkeypatch, lambda count: 1000.0, oom_from=2)
    assert "could not be measured: oom" in proof_sentences.result(record)
    record = measured(tmp_path / "apart", monkeypatch, lambda count: 2000.0, common_seconds=1.0)
    assert "all copies trained at the same time for only 1.0 s of 5.0 s" in proof_sentences.result(record)


def test_a_copy_trains_on_until_the_last_has_trained_for_the_measured_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second copy starts late, after more than the measured time; each reports its speed 20 times a second."""
    first_may, ended = threading.Lock(), []
    monkeypatch.setattr(copies, "together", lambda runs: (0.0, 0.2, 1000.0, 100.0))

    class Late(PlantedBench):
        def measure(self, preset: Preset, side: str, repeat: int, *, judge: Judge | None = None, **_more: Any) -> Trial:
            late = not first_may.acquire(blocking=False)
            assert judge is not None
            time.sleep(0.5 if late else 0.0)
            until = time.monotonic() + 10
            while not judge([1000.0]) and time.monotonic() < until:
                time.sleep(0.05)
            ended.append((late, time.monotonic()))
            return Trial(side=side, repeat=repeat, run=f"{late:d}-c2", outcome="slower", error="ended early")

    began = time.monotonic()
    row = copies.measure(Late(tmp_path, lambda _options, _before: Planted(1.0)), presets.defaults(), 2, 1, 0.2)
    assert (row.outcome, row.error, row.samples_per_second) == ("ok", None, 1000.0)
    assert all(0.7 <= moment - began < 8 for _, moment in ended), "both ended when the late one had trained for 0.2 s"


class Planned:
    """A bench whose copies end as planned, by the order of their start; the others train on until they may end."""

    def __init__(self, folder: Path, *rows: Trial) -> None:
        self.folder, self._rows, self._lock = folder, list(rows), threading.Lock()
        self.asked: list[tuple[str, int, float | None]] = []
        self.waited_in_vain = False

    def measure(
        self, preset: Preset, side: str, repeat: int, *, seconds: float | None = None, judge: Judge | None = None
    ) -> Trial:
        with self._lock:
            row = self._rows[len(self.asked)]
            self.asked.append((side, repeat, seconds))
        if row.outcome == "slower":
            until = time.monotonic() + 60
            while judge is not None and not judge([1.0]):
                time.sleep(0.005)
                self.waited_in_vain |= time.monotonic() > until
                if self.waited_in_vain:
                    break
        return row

    def run_of(self, trial: Trial) -> Run:
        return Run(self.folder / trial.run)


def of_copy(run: str, outcome: Any, **more: Any) -> Trial:
    return Trial(side="c2", repeat=4, run=run, outcome=outcome, global_batch_size=50, **more)


def test_the_row_of_several_copies_is_about_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[list[str]] = []

    def together(runs: Sequence[Run]) -> tuple[float, float, float, float]:
        counted.append([run.id for run in runs])
        return 10.0, 10.2, 2000.0, 40.0

    monkeypatch.setattr(copies, "together", together)
    known = {"seconds": 7.0, "input_wait": 0.1, "error": "early", "samples_per_second": 1.0, "step_ms": 1.0}
    rows = [of_copy("10-c2", "slower", **known), of_copy("09-c2", "slower", **known | {"seconds": 9.0}),
            of_copy("11-c2", "slower", **known | {"input_wait": 0.4, "disturbed": "by a copy"})]  # fmt: skip
    bench: Any = Planned(tmp_path, *rows)
    row = copies.measure(bench, presets.defaults(), 3, 4, 0.2)
    first = of_copy("09-c2", "ok", seconds=9.0, samples_per_second=2000.0, step_ms=75.0)
    assert row.input_wait == pytest.approx(0.2)
    assert row == dataclasses.replace(first, input_wait=row.input_wait)
    assert counted == [["09-c2", "10-c2", "11-c2"]]
    assert bench.asked == [("c3", 4, 0.2 + copies.APART_SECONDS)] * 3
    unknown = [of_copy("1", "ok"), of_copy("2", "ok", input_wait=0.3)]
    monkeypatch.setattr(copies, "together", lambda _runs: (0.0, 1.0, 0.0, 0.0))
    bench = Planned(tmp_path, *unknown)
    row = copies.measure(bench, presets.defaults(), 2, 1, 1.0)
    assert (row.input_wait, row.step_ms, row.samples_per_second) == (0.3, None, 0.0)


@pytest.mark.parametrize("failed", [0, 1])
def test_a_copy_that_fails_ends_the_others_and_is_the_row(tmp_path: Path, failed: int) -> None:
    rows = [of_copy("01-c2", "slower"), of_copy("02-c2", "slower")]
    rows[failed] = of_copy(rows[failed].run, "oom", error="no room")
    bench: Any = Planned(tmp_path, *rows)
    assert copies.measure(bench, presets.defaults(), 2, 1, 1000.0) == rows[failed]
    assert not bench.waited_in_vain, "the other one trains no longer than the failed one"


@pytest.mark.slow
@pytest.mark.usefixtures("forked_trials")
def test_copies_are_measured_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Real trainings at once; how fast they are is not looked at."""
    (tmp_path / "small.yaml").write_text(SMALL)
    given = ("--preset", "small.yaml", "--copies", "2", "--seconds", "1", "--anyway", "--json")
    done = gputui("scaling", *given, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    one, two = json.loads(done.stdout)["scaling"]["points"]
    assert (one["copies"], two["copies"]) == (1, 2)
    good: list[dict[str, Any]] = [trial for trial in two["trials"] if trial["outcome"] == "ok"]
    assert good, two
    assert all(trial["samples_per_second"] > 0 for trial in good)
    trials = next(iter(folder.proofs())).trials
    assert len(trials) >= 9, "each copy has a run of its own"
    assert cli.run(["scaling", "--preset", "quickstart", "--copies", "2", "--keep", "global"]) == 2
    assert "leave out --replicas and --keep" in capsys.readouterr().err
