"""How the speed grows with the replicas: rounds of trials, what limits it, what is refused, and all its views."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import checks, presets
from gputui.engine.job.machine_gpus import Gpu, Machine
from gputui.engine.options import Options
from gputui.engine.proof import duration, folder, request
from gputui.engine.proof.markdown import as_markdown
from gputui.engine.proof.request import ProofError, Request
from gputui.engine.scaling import scaling_request
from gputui.engine.scaling.rounds import Rounds
from gputui.engine.trials import proof_sentences, scaling_sentences
from gputui.engine.trials.comparing import BaselineFailed, Stopped
from gputui.engine.trials.record import Record
from gputui.engine.trials.trial import Trial
from gputui.tui import cli
from gputui.tui.printing import proof as printing

from tests.support.front_door import gputui, opened, until
from tests.support.proving import HERE, Planted, PlantedBench
from tests.support.proving import forked_trials as forked_trials
from tests.support.typed import typed

PRESET = """\
workload: {entry: "train.py:build"}
input: {batch_size: 32}
train: {validation_split: 0}
"""
CODE = """\
import keras, numpy as np
def build(context):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    return {"model": model, "loss": "mse", "train": (np.zeros((512, 4), "float32"), np.zeros(512))}
"""
PARTS = ("device.logical_devices=4", "batch_size=64")
Figures = Callable[[Options, int], Planted]


def replicas(options: Options) -> int:
    return checks.replicas(options, HERE)


def asked(*settings: str, counts: Sequence[int] = (1, 2, 4), keep: str = "per-replica", **more: Any) -> Request:
    preset = presets.defaults([*PARTS, *settings])
    made = request.of_opened(
        "scaling", preset, None, scaling=scaling_request.scaling_settings(preset, HERE, counts, keep), **more
    )
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:  # as its process gets it
        file.write(made.to_json())
        file.flush()
        return Request.read(Path(file.name))


def measured(path: Path, wanted: Request, figures: Figures, known: Sequence[Trial] = ()) -> tuple[Record, PlantedBench]:
    """Everything but the process, whatever ends it but a fault of the test."""
    path.mkdir(exist_ok=True)
    record, bench = folder.empty_record(path, wanted), PlantedBench(path / "trials", figures)
    try:
        Rounds(wanted, record, bench, known).measure()
        record.state = "done"
    except Stopped:
        record.state = "stopped"
    finally:
        record.write()
    return record, bench


def told(record: Record) -> dict[str, Any]:
    return dict(json.loads(record.path.read_text()))


def test_rounds_go_up_and_down_and_each_is_compared_with_its_own_single_replica(tmp_path: Path) -> None:
    speeds = {1: 1000.0, 2: 1900.0, 4: 3400.0}
    drift = [1.0, 0.8, 0.6]  # of a machine that gets slower: the same within a round
    record, bench = measured(tmp_path / "p", asked(), lambda o, n: Planted(speeds[replicas(o)] * drift[n // 3]))
    assert [replicas(options) for options in bench.asked] == [1, 2, 4, 4, 2, 1, 1, 2, 4]
    assert {options.input.batch_size for options in bench.asked} == {64}
    data = told(record)
    one, two, four = data["scaling"]["points"]
    assert [point["efficiency"] for point in (one, two, four)] == pytest.approx([1, 0.95, 0.85], abs=0.01)
    assert max(two["spread"], four["spread"]) < 0.01, "the drift is not in it"
    assert (two["global_batch_size"], four["global_batch_size"]) == (128, 256)
    assert four["speedup"] == pytest.approx(3.4, abs=0.02)
    assert data["gain_total"] == four["speedup"]
    assert len(record.trials) == 9
    said = proof_sentences.result(typed(Record, data))
    assert said.startswith("4 replicas train 3.40 times as fast as 1: an efficiency of 85 % (spread 0.")
    assert "weak scaling" in proof_sentences.result(typed(Record, data))


def test_the_global_batch_is_kept_where_that_is_asked_for(tmp_path: Path) -> None:
    wanted = asked("strategy.kind=mirrored", keep="global", counts=[2, 4])
    record, bench = measured(tmp_path / "p", wanted, lambda o, n: Planted(1000.0 * replicas(o)))
    assert {(replicas(one), one.input.batch_size, one.strategy.kind) for one in bench.asked} == {
        (1, 256, "single"), (2, 128, "mirrored"), (4, 64, "mirrored"),
    }  # fmt: skip
    assert {point["global_batch_size"] for point in told(record)["scaling"]["points"]} == {256}
    assert "strong scaling" in proof_sentences.result(typed(Record, told(record)))


def test_what_grew_with_the_replicas_is_told_as_far_as_it_was_measured(tmp_path: Path) -> None:
    for wait, said in (0.5, "most of what was added is waiting for the input"), (0.1, "the step itself takes longer"):

        def figures(options: Options, before: int, waits: float = wait) -> Planted:
            alone = replicas(options) == 1
            return Planted(1000.0 if alone else 600.0 * replicas(options), input_wait=0.1 if alone else waits)

        data = told(measured(tmp_path / str(wait), asked(counts=[2]), figures)[0])
        rehearsal, limit = scaling_sentences.remarks(typed(Record, data))
        assert "share the cores of one CPU" in rehearsal
        assert said in limit, wait
    fine = told(measured(tmp_path / "fine", asked(counts=[2]), lambda o, n: Planted(950.0 * replicas(o)))[0])
    assert len(list(scaling_sentences.remarks(typed(Record, fine)))) == 1


def test_with_the_same_global_batch_the_input_has_to_be_as_many_times_faster(tmp_path: Path) -> None:
    """One replica waits 20 ms of a step of 100; each of two waits 20 of 60, where 10 of 50 would be twice the speed."""

    def figures(options: Options, before: int) -> Planted:
        alone = replicas(options) == 1
        return Planted(2560.0 if alone else 256 / 0.06, input_wait=0.2 if alone else 1 / 3)

    wanted = asked("strategy.kind=mirrored", counts=[2], keep="global")
    *_, limit = scaling_sentences.remarks(typed(Record, told(measured(tmp_path / "p", wanted, figures)[0])))
    assert "2 replicas: a step takes 60 ms, 50 ms would be 2 times the speed" in limit
    assert "most of what was added is waiting for the input" in limit


def test_on_gpus_all_replicas_are_compiled_alike() -> None:
    for setting, expected in (("compile.xla=auto", False), ("compile.xla=true", None), ("compile.xla=false", None)):
        preset = presets.defaults([setting])
        found = scaling_request.scaling_settings(preset, machine_with(2), [2], "per-replica").settings
        assert [one.changes.get("compile.xla") for one in found] == [expected, expected], setting
    scaling_settings = scaling_request.scaling_settings(presets.defaults(PARTS), HERE, [2], "per-replica")
    assert [one.changes.get("compile.xla") for one in scaling_settings.settings] == [None, None], (
        "auto compiles nothing on a CPU"
    )
    points = [{"replicas": 1, "changes": {"compile.xla": False}}, {"replicas": 2, "changes": {"compile.xla": False}}]
    assert "measured without XLA" in next(scaling_sentences.remarks(typed(Record, {"scaling": {"points": points}})))


def test_a_number_of_replicas_that_cannot_be_measured_is_a_row_and_the_others_go_on(tmp_path: Path) -> None:
    for outcome, trials in ("oom", 1), ("crashed", 2):

        def figures(options: Options, before: int, ends: Any = outcome) -> Planted:
            return Planted(1000.0 * replicas(options), outcome=ends if replicas(options) == 4 else "ok")

        data = told(measured(tmp_path / outcome, asked(), figures)[0])
        *_, two, four = data["scaling"]["points"]
        assert (four["decision"], len(four["trials"])) == ("failed", trials)
        assert (two["decision"], len(two["trials"])) == ("measured", 3)
        assert proof_sentences.result(typed(Record, data)).startswith("2 replicas train 2.00 times")
        for text in (as_markdown(typed(Record, data)), "\n".join(scaling_sentences.remarks(typed(Record, data)))):
            assert f"4 replicas could not be measured: {outcome}" in text
    with pytest.raises(BaselineFailed, match="1 replica could not be measured"):
        measured(tmp_path / "first", asked(), lambda o, n: Planted(outcome="oom" if replicas(o) == 1 else "ok"))


def test_one_that_was_stopped_goes_on_with_what_it_has_and_keeps_its_time(tmp_path: Path) -> None:
    def stops(options: Options, before: int) -> Planted:
        if before == 4:
            bench_of[0].stop.ask()
        return Planted(1000.0 * replicas(options), outcome="stopped" if before == 4 else "ok")

    bench_of: list[PlantedBench] = []
    wanted, path = asked(), tmp_path / "p"
    path.mkdir()
    record, bench = folder.empty_record(path, wanted), PlantedBench(path / "trials", stops)
    bench_of.append(bench)
    with pytest.raises(Stopped):
        Rounds(wanted, record, bench).measure()
    record.state = "stopped"
    record.write()
    assert proof_sentences.result(typed(Record, told(record))).startswith("4 replicas train 4.00 times")
    known = typed(Record, told(record)).all_trials
    again, more = measured(path, wanted, lambda o, n: Planted(1000.0 * replicas(o)), known)
    assert len(more.asked) == 5, "4 of 9 were measured before"
    dead = [dataclasses.replace(trial, outcome="crashed") for trial in known if trial.replicas == 2]
    anew, _ = measured(tmp_path / "anew", wanted, lambda o, n: Planted(1000.0 * replicas(o)), dead)
    outcomes = [row["outcome"] for point in told(anew)["scaling"]["points"] for row in point["trials"]]
    assert outcomes == ["ok"] * 9, "what was killed is measured again"
    assert [len(point["trials"]) for point in told(again)["scaling"]["points"]] == [3, 3, 3]
    short = dataclasses.replace(wanted, limit_seconds=65.0)  # two rounds of three trials of 10 s each
    late = told(measured(tmp_path / "late", short, lambda o, n: Planted(1000.0))[0])
    assert late["ended_because"] == "", "planted trials take no time"
    ended = told(measured(tmp_path / "none", dataclasses.replace(wanted, limit_seconds=1.0), stops)[0])
    assert ended["ended_because"].startswith("the time budget of 0.0")


def test_a_trial_that_was_stopped_is_measured_again(tmp_path: Path) -> None:
    class Asked(PlantedBench):
        def measure(self, *given: Any, **more: Any) -> Trial:
            row = super().measure(*given, **more)
            if len(self.asked) == 2:
                self.stop.ask()
                row.outcome = "stopped"
            return row

    (tmp_path / "p").mkdir()
    record, bench = folder.empty_record(tmp_path / "p", asked()), Asked(tmp_path / "t", lambda o, n: Planted(1000.0))
    with pytest.raises(Stopped):
        Rounds(asked(), record, bench).measure()
    assert [(trial.outcome, trial.key) for trial in record.trials] == [("ok", "1 1 1"), ("stopped", "")]
    again, more = measured(tmp_path / "q", asked(), lambda o, n: Planted(1000.0), record.trials)
    assert len(more.asked) == 8
    assert {trial.outcome for trial in again.trials} == {"ok"}


def test_what_cannot_be_measured_is_refused_in_a_line() -> None:
    two = machine_with(2)
    for settings, here, counts, keep, said in [
        ((), HERE, (), "per-replica", "give --set device.logical_devices=2 to rehearse"),
        ((), machine_with(1), (), "per-replica", "only GPU 0 takes part"),
        (("visible=1",), two, (1, 2), "per-replica", "only GPU 1 takes part"),
        ((), two, (1, 4), "per-replica", "4 replicas need 4 devices, and there are 2"),
        ((), two, (1,), "per-replica", "one replica alone shows no scaling"),
        (("batch_size=33",), two, (), "global", "a global batch of 33 cannot be shared out among 2 replicas"),
    ]:
        with pytest.raises(ProofError, match=said):
            scaling_request.scaling_settings(presets.defaults(settings), here, counts, keep)
    eight = scaling_request.scaling_settings(presets.defaults(["batch_size=64"]), machine_with(6), (), "per-replica")
    assert [one.replicas for one in eight.settings] == [1, 2, 4, 6]
    assert eight.shared == ""
    alike = {"compile.xla": False}
    assert eight.settings[1].changes == {"strategy.kind": "mirrored", "strategy.devices": [0, 1], **alike}
    two_of_four = presets.defaults(["strategy.kind=mirrored", "strategy.devices=[1,3]"])
    chosen = scaling_request.scaling_settings(two_of_four, machine_with(4), (), "global")
    assert chosen.settings[0].changes["strategy.devices"] == [1]
    assert chosen.settings[0].changes["strategy.kind"] == "one_device"
    assert chosen.settings[0].changes["input.batch_size"] == 2 * chosen.settings[1].changes["input.batch_size"]


def test_minutes_that_are_too_few_for_all_rounds_are_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of nine trials is expected to take 20 s."""
    monkeypatch.setattr(duration, "of_request", lambda _request: 20.0)
    given = ("quickstart", PARTS, (1, 2, 4), "per-replica")
    with pytest.raises(ProofError) as refused:
        scaling_request.of_preset(*given, 2.9)
    assert str(refused.value) == (
        "2.9 min are too few: 3 rounds, 9 trials in all, take about 3.0 min here; give 4 minutes or more, or fewer "
        "numbers"
    )
    made = scaling_request.of_preset(*given, 3.0)
    assert (made.kind, made.limit_seconds) == ("scaling", 180.0)
    assert scaling_request.of_preset(*given, None).limit_seconds is None
    opened = scaling_request.of_opened(presets.defaults([*PARTS, "batch_size=64"]), home / "mine.yaml", "global")
    assert opened.scaling is not None
    assert (opened.source, opened.scaling.keep) == (str(home / "mine.yaml"), "global")
    assert [setting.replicas for setting in opened.scaling.settings] == [1, 2, 4]


def machine_with(gpus: int) -> Machine:
    found = tuple(Gpu(index, f"GPU-{index}", "a GPU", (9, 0), 80 * 2**30) for index in range(gpus))
    return dataclasses.replace(HERE, gpus=found)


def test_all_views_tell_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def figures(options: Options, before: int) -> Planted:
        return Planted(1000.0 if replicas(options) == 1 else 930.0 * replicas(options))

    data = told(measured(tmp_path / "p", asked(), figures)[0])
    printing.show_trials(typed(Record, data))
    printing.show_result(typed(Record, data))
    printed, report = capsys.readouterr().out, as_markdown(typed(Record, data))
    assert report.startswith("# How well it scales: default")
    assert "3 rounds of trials, one for each number of replicas" in report
    for text in (printed, report):
        for words in ("speed-up", "efficiency", "3.72", "93 %", "A rehearsal", "09-4"):
            assert words.lower() in text.lower(), words
    assert scaling_sentences.in_brief(typed(Record, data)) == "scaling: 4 at 93 %, 2 at 93 %"


@pytest.mark.slow
@pytest.mark.usefixtures("forked_trials")
def test_scaling_is_measured_from_the_command_line_and_goes_on_after_a_kill(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Real trainings over two logical devices; how fast they are is not looked at."""
    (tmp_path / "small.yaml").write_text(PRESET)
    (tmp_path / "train.py").write_text(CODE)
    given = ["--preset", "small.yaml", "--set", "logical_devices=2"]
    with opened("scaling", *given, "--seconds", "0.1", "--anyway", "--json", cwd=tmp_path) as viewer:
        proof = until(lambda: next(iter(folder.proofs()), None))
        until(lambda: len((proof.data.get("scaling") or {}).get("points", [{}])[0].get("trials", ())) >= 1)
        os.kill(proof.data["pid"], signal.SIGKILL)
        viewer.communicate(timeout=120)
    assert proof.state == "crashed"
    done = gputui("scaling", "--resume", "--anyway", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    one, two = data["scaling"]["points"]
    assert one["trials"][0]["run"] == "01-1", "the trial before the kill counts"
    assert [len([row for row in point["trials"] if row["outcome"] == "ok"]) for point in (one, two)] == [3, 3]
    assert {row["replicas"] for row in two["trials"]} == {2}
    assert (one["global_batch_size"], two["global_batch_size"]) == (32, 64)
    assert two["efficiency"] == pytest.approx(two["speedup"] / 2)
    assert cli.run(["proof"]) == 0
    assert "2 replicas train" in capsys.readouterr().out
    cli.run(["tune", "--resume", proof.id])
    assert "is not a search" in capsys.readouterr().err
    for given_name in ([], [proof.id]):
        assert cli.run(["scaling", "--resume", *given_name]) == 2
        refused = capsys.readouterr().err
        assert refused.startswith(f"{proof.id} has ended; gputui proof "), "the latest is complete"
