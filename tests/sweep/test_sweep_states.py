"""What a sweep makes of the states of its trainings and of its time, without a training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets, runs
from gputui.engine.presets.preset import PresetError, Problem
from gputui.engine.proof import folder, proof_start
from gputui.engine.proof.request import ProofError
from gputui.engine.queue import adding, entries
from gputui.engine.runs import Run, part_of_sweep, runs_folder, titles
from gputui.engine.sweep import sweep_request, trainings
from gputui.engine.sweep.sweep_loop import SweepLoop
from gputui.engine.sweep.sweep_time import SweepTime
from gputui.engine.sweep.trainings import Look, QueuedTrainings
from gputui.engine.trials import sweep_groups
from gputui.engine.trials.comparing import BaselineFailed, Stopped
from gputui.engine.trials.sweep_record import PROOF, SEARCH, Axis, SweepSettings, SweepTrial
from gputui.engine.trials.trial_runner import Stop
from gputui.tui.base.glyphs import RICH
from gputui.tui.drawing.proof import head

from tests.support import recorded
from tests.support.queued import no_runner
from tests.support.swept import Simulated, read_back, request_of, swept
from tests.sweep.test_sweep import loss

RATE = "train.learning_rate"
RATES = "learning_rate=1e-3,2e-3,3e-3"
ONE, TWO = {RATE: 0.001}, {RATE: 0.002}


# ---- time -------------------------------------------------------------------------------------------


def trained(changes: dict[str, Any], whole: float | None, state: str = "done", **more: Any) -> SweepTrial:
    value = 0.5 if state == "done" else None
    return SweepTrial(run="r", changes=changes, seed=1, state=state, whole_seconds=whole, value=value, **more)


def time_of(trials: Sequence[SweepTrial], resumes: bool = False, epochs: int = 9, **settings: Any) -> SweepTime:
    known: dict[str, Any] = {"minutes": 10.0, "proof_seeds": 4}
    made = SweepSettings(axes=[Axis(key=RATE, values=[1, 2])], metric="val_loss", **known | settings)
    return SweepTime(made, trials, epochs, resumes)


def test_a_training_takes_as_long_as_those_of_its_setting_that_have_ended() -> None:
    assert time_of([]).whole(ONE) == 0.0
    trials = [trained(ONE, 10.0), trained(ONE, 20.0), trained(ONE, 90.0, "stopped"), trained(TWO, 60.0)]
    assert (time_of(trials).whole(ONE), time_of(trials).whole(TWO), time_of(trials).whole()) == (15.0, 60.0, 30.0)
    assert time_of([trained(ONE, 90.0, "stopped"), trained(TWO, None)]).whole(TWO) == 90.0


@pytest.mark.parametrize(
    ("flying", "elapsed", "then", "fits"),
    [(0, 539.0, 0.0, True), (0, 540.0, 0.0, False), (0, 439.0, 100.0, True), (0, 440.0, 100.0, False),
     (1, 479.0, 0.0, True), (1, 480.0, 0.0, False), (3, 419.0, 0.0, False)],
)  # fmt: skip
def test_a_trial_begins_if_it_ends_in_time_behind_those_in_the_queue(
    flying: int, elapsed: float, then: float, fits: bool
) -> None:
    """Each takes a minute, of ten."""
    assert time_of([trained(ONE, 60.0)]).ends_in_time(None, flying, elapsed, then) is fits


@pytest.mark.parametrize(
    ("trial", "resumes", "latest"),
    [
        (trained(TWO, None, "planned"), False, 580.0),  # the first 3 of 9 epochs
        (trained(TWO, None, "paused", rungs=[0.5]), False, 540.0),
        (trained(TWO, None, "paused", rungs=[0.5], seconds=20.0), True, 560.0),
        (trained(TWO, None, "planned", part=PROOF), False, 540.0),
        (trained(TWO, None, "stopped", rungs=[0.5], seconds=90.0), True, 600.0),
    ],
)
def test_a_trial_takes_the_time_until_its_next_pause(trial: SweepTrial, resumes: bool, latest: float) -> None:
    time = time_of([trained(ONE, 60.0)], resumes, rungs=[3])
    assert time.ends_in_time(trial, 0, latest - 1)
    assert not time.ends_in_time(trial, 0, latest)


@pytest.mark.parametrize(
    ("trials", "settings", "latest"),
    [
        ([ONE, TWO], {}, 60.0),  # the proof takes 8 min, and the trial one
        ([ONE, TWO], {"parallel": 2}, 300.0),
        ([ONE], {}, 60.0),
        ([ONE], {"rungs": [3]}, 40.0),  # another one has to be complete as well: 8 + 1 min, and a third of one
        ([ONE, TWO], {"proof_seeds": 0}, 540.0),
        ([ONE, TWO], {"minutes": 7.0}, 0.0),
        ([ONE, TWO], {"minutes": 6.0}, 300.0),  # no time for a proof of three seeds: the search has all
    ],
)
def test_a_trial_of_the_search_leaves_time_for_the_proof(
    trials: list[dict[str, Any]], settings: dict[str, Any], latest: float
) -> None:
    time = time_of([trained(changes, 60.0) for changes in trials], **settings)
    trial = trained({RATE: 0.003}, None, "planned") if settings.get("rungs") else None
    assert time.is_left_for(trial, SEARCH, 0, latest - 1) is (latest > 0)
    assert not time.is_left_for(trial, SEARCH, 0, latest)
    assert time.is_left_for(None, PROOF, 0, time.limit - 61)


@pytest.mark.parametrize(
    ("part", "trials", "settings", "elapsed", "over"),
    [
        (PROOF, [ONE, TWO], {}, 599.0, False),
        (PROOF, [ONE, TWO], {}, 600.0, True),
        (SEARCH, [ONE], {}, 599.0, False),
        (SEARCH, [ONE], {}, 600.0, True),
        (SEARCH, [ONE, TWO], {"proof_seeds": 0}, 599.0, False),
        (SEARCH, [ONE, TWO], {}, 227.0, False),  # the shortest proof takes 6 min, with a margin of 12 s
        (SEARCH, [ONE, TWO], {}, 228.0, True),
        (SEARCH, [ONE, TWO], {}, 252.0, True),
        (SEARCH, [ONE, TWO], {}, 253.0, False),  # it is too late for a proof, so that the search has the rest
        (SEARCH, [ONE, TWO], {"proof_seeds": 2, "minutes": 5.0}, 53.0, False),
        (SEARCH, [ONE, TWO], {"proof_seeds": 2, "minutes": 5.0}, 54.0, True),
    ],
)
def test_the_search_is_over_at_the_last_moment_for_the_shortest_proof(
    part: str, trials: list[dict[str, Any]], settings: dict[str, Any], elapsed: float, over: bool
) -> None:
    time = time_of([trained(changes, 60.0) for changes in trials], **settings)
    assert time.is_over(part, elapsed) is over


def test_trials_of_the_proof_that_are_done_take_no_more_time() -> None:
    trials = [trained(ONE, 60.0), trained(TWO, 60.0)]
    done = [trained(ONE, 60.0, part=PROOF), trained(TWO, 60.0, part=PROOF), trained({RATE: 0.9}, 60.0, part=PROOF)]
    time = time_of([*trials, *done])
    assert time.is_left_for(None, SEARCH, 0, 179.0), "6 min of the proof are left, and a minute of the trial"
    assert not time.is_left_for(None, SEARCH, 0, 180.0)


def test_the_finalists_are_chosen_again_after_a_trial_has_ended() -> None:
    trials = [trained(ONE, 60.0)]
    time = time_of(trials)
    assert (time.finalists, time.lacks_pair) == ([ONE], True)
    trials.append(trained(TWO, 60.0))
    assert time.finalists == [ONE], "until that is said"
    time.has_settled()
    assert (time.finalists, time.lacks_pair) == ([ONE, TWO], False)
    assert time_of(trials[:1], finalists=1).lacks_pair is False
    assert len(time_of([*trials, trained({RATE: 0.003}, 60.0)]).finalists) == 2


# ---- trainings in the queue ---------------------------------------------------------------------------


def queued(state: entries.State, **more: Any) -> Look:
    """The look at a trial whose run is in the queue in this state."""
    run = runs.create("swept", "schema_version: 1\n", more={"options.json": "{}"})
    entry = entries.add(run)
    entries.write(replace(entry, state=state, **more))
    return QueuedTrainings(request_of([RATES]), "s").look(SweepTrial(run=run.id, changes={}, seed=1))


@pytest.mark.usefixtures("home")
def test_a_trial_in_the_queue_waits_trains_or_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)
    assert queued("waiting") == Look("waiting")
    assert queued("starting") == Look("waiting")
    assert queued("running") == Look("running")
    assert queued("held", hold_reason="held by you") == Look("held", error="held by you")
    gone = SweepTrial(run="gone", changes={}, seed=1)
    assert QueuedTrainings(request_of([RATES]), "s").look(gone) == Look("absent")


def result(run: Run, **fields: Any) -> None:
    run.file("result.json").write_text(json.dumps(dict(run.result or {}) | fields))


@pytest.mark.parametrize(
    ("fields", "state", "error", "cause"),
    [
        ({"outcome": "ok"}, "done", "", ""),
        ({"outcome": "stopped"}, "stopped", "", ""),
        ({"outcome": "error", "error": {"kind": "nan", "message": "a\nb"}}, "failed", "a", "nan"),
        ({"outcome": "oom", "error": {"kind": "out_of_memory", "message": "m"}}, "failed", "m", "oom"),
        ({"outcome": "timeout", "error": {"kind": "time", "message": "m"}}, "failed", "m", "timeout"),
        ({"outcome": "error", "error": None}, "failed", "it has error", "error"),
    ],
)
def test_a_trial_that_has_ended_has_the_figures_of_its_epochs(
    home: Path, fields: dict[str, Any], state: str, error: str, cause: str
) -> None:
    run = recorded.write(home, name="20261126-120000-s-001", seconds=100, gpus=0, epoch_seconds=20)
    result(run, seconds=77.0, **fields)
    look = QueuedTrainings(request_of([RATES]), "s").look(SweepTrial(run=run.id, changes={}, seed=1))
    assert (look.state, look.error, look.cause, look.seconds) == (state, error, cause, 77.0)
    assert (len(look.epochs), "val_loss" in look.epochs[-1]) == (4, True)
    assert look.epoch_seconds == (20.0 if state in ("done", "stopped") else None)


def test_a_trial_that_waits_leaves_the_queue_and_one_that_trains_is_asked_to_stop(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_runner(monkeypatch)
    asked: list[str] = []
    monkeypatch.setattr(runs, "request_stop", lambda run: asked.append(run.id))
    of_queue = QueuedTrainings(request_of([RATES]), "s")
    run = runs.create("swept", "schema_version: 1\n", more={"options.json": "{}"})
    entries.add(run)
    trial = SweepTrial(run=run.id, changes={}, seed=1)
    assert of_queue.stop(trial)
    assert (entries.read(run.id), asked) == (None, [])
    entries.write(replace(entries.add(run), state="running"))
    assert of_queue.stop(trial)
    assert asked == [run.id]

    def refuse(run: Run) -> None:
        raise runs.RunError("its process id is not known yet")

    monkeypatch.setattr(runs, "request_stop", refuse)
    assert not of_queue.stop(trial), "it is asked again"


@pytest.mark.usefixtures("home")
def test_a_sweep_of_which_no_trial_begins_says_what_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_runner(monkeypatch)
    request, stop, heads = request_of([RATES], minutes=9.0), Stop(), list[str]()
    record = folder.empty_record(tmp_path / "20261127-101112-s", request)
    record.path.parent.mkdir()

    def wait() -> None:
        rows = head(read_back(record.path.parent), 0.0, 78, RICH)
        heads.append("\n".join("".join(text for text, _ in row) for row in rows))
        reason = "needs the CPU; used by somebody's own-005 since 01:38"  # as the runner writes it
        entries.write_news({"why": {f"{record.id}-{number:03d}": reason for number in (1, 2)}})
        stop.count = len(heads) - 1

    with pytest.raises(Stopped):
        SweepLoop(request, record, QueuedTrainings(request, record.id), stop, wait).run()
    assert "used by" not in heads[0], "the runner has not looked yet"
    assert "0 training, 2 in the queue" in heads[1]
    assert "used by somebody's own-005 since 01:38" in heads[1], "at 80 columns"


@pytest.mark.usefixtures("home")
def test_a_trial_is_made_once_with_its_pause_which_moves_on(monkeypatch: pytest.MonkeyPatch) -> None:
    queued: list[str] = []
    no_runner(monkeypatch)
    monkeypatch.setattr(adding, "queue_trial", lambda run, _anyway: queued.append(run.id))
    of_queue = QueuedTrainings(request_of([RATES], 9, rungs=[1, 3]), "20261127-101112-s")
    trial = SweepTrial(run="20261127-101112-s-001", changes=ONE, seed=7, until=1)
    of_queue.start(trial)
    run = Run(runs_folder() / trial.run)
    whole = {"sweep": "20261127-101112-s", "pause_after": 1, "changes": ONE, "seed": 7}
    assert json.loads(run.file(part_of_sweep.FILE).read_text()) == whole
    assert json.loads(run.file(titles.NOTES_FILE).read_text()) == {"tags": ["sweep-20261127-101112"]}
    options = presets.resolve(str(run.file("preset.yaml"))).options
    assert (options.train.seed, options.train.learning_rate, options.run.checkpoint) == (7, 0.001, "epoch")
    assert of_queue.look(trial).state == "planned", "it was not queued before the process was killed"
    made = run.file("preset.yaml").stat().st_mtime_ns
    for until in (3, None):
        trial.until = until
        of_queue.start(trial)
        assert json.loads(run.file(part_of_sweep.FILE).read_text()) == whole | {"pause_after": until}
    assert run.file("preset.yaml").stat().st_mtime_ns == made
    assert queued == [trial.run] * 3
    trial.until = 3
    entries.add(run)
    of_queue.start(trial)
    assert part_of_sweep.pause_after(run) is None, "it may have begun"
    assert len(queued) == 3, "it is in the queue"
    of_queue.let_go(trial)
    assert queued == [trial.run] * 3


def test_the_preset_of_a_trial_sends_no_notice_and_pauses_with_a_checkpoint() -> None:
    asked = request_of([RATES], rungs=[1], epochs=3)
    text = f"{asked.preset}run: {{checkpoint: 'off', on_oom: accumulate}}\nnotify: {{command: echo, when: end}}\n"
    made = trainings.trial_preset(replace(asked, preset=text), ONE, 7).options
    assert (made.train.seed, made.train.learning_rate, made.run.on_oom) == (7, 0.001, "stop")
    assert (made.notify.command, made.notify.when, made.run.checkpoint) == (None, "never", "epoch")
    whole = request_of([RATES], epochs=3)
    whole = replace(whole, preset=f"{whole.preset}run: {{checkpoint: 'off'}}\n")
    assert trainings.trial_preset(whole, ONE, 7).options.run.checkpoint == "off"
    assert trainings.tag_of("20261126-214120-cnn") == "sweep-20261126-214120"


def test_only_a_complete_training_has_a_value_that_counts() -> None:
    def trial(state: str, value: float | None, **more: Any) -> SweepTrial:
        return SweepTrial(run="r", changes={"a": 1}, seed=1, state=state, value=value, **more)

    trials = [trial("done", 1.0), trial("paused", 2.0), trial("stopped", 3.0), trial("done", None), trial("done", 4.0)]
    assert sweep_groups.values(trials) == [1.0, 4.0]
    mean, spread = sweep_groups.mean_and_spread(trials)
    assert (mean, round(spread or 0.0, 9)) == (2.5, round(4.5**0.5, 9))
    assert sweep_groups.ranked([*trials, trial("failed", None)], higher=False) == []
    assert sweep_groups.ranked(trials, higher=False) == [({"a": 1}, 2.5)]
    assert sweep_groups.key_of({"b": 1, "a": 2}) == sweep_groups.key_of({"a": 2, "b": 1})


# ---- the loop -------------------------------------------------------------------------------------------


def test_a_run_that_is_deleted_meanwhile_has_failed(tmp_path: Path) -> None:
    class Deleting(Simulated):
        def look(self, trial: SweepTrial) -> Look:
            look = super().look(trial)
            return Look("absent") if trial.run.endswith("002") and look.state == "done" else look

    sweep = swept(request_of([RATES], proof_seeds=0), Deleting(loss), tmp_path).sweep
    assert sweep is not None
    assert [(trial.state, trial.error, trial.cause) for trial in sweep.trials] == [
        ("done", "", ""), ("failed", "its run was deleted", "deleted"), ("done", "", "")]  # fmt: skip


def test_a_setting_that_is_refused_fails_alone_and_a_held_one_ends_the_sweep(tmp_path: Path) -> None:
    class Refusing(Simulated):
        def start(self, trial: SweepTrial) -> None:
            if trial.run.endswith("002"):
                problems = Problem("--set", None, RATE, "it does not fit"), Problem("p", 7, RATE, "nor here")
                raise PresetError(problems)
            super().start(trial)

    sweep = swept(request_of([RATES], proof_seeds=0), Refusing(loss), tmp_path).sweep
    assert sweep is not None
    refused = sweep.trials[1]
    assert (refused.state, refused.cause, refused.ended_t is not None) == ("failed", "preset", True)
    assert refused.error == f"--set: {RATE}: it does not fit"

    class Held(Simulated):
        def look(self, trial: SweepTrial) -> Look:
            return Look("held", error="held by you") if super().look(trial).state == "running" else super().look(trial)

    (tmp_path / "held").mkdir()
    with pytest.raises(BaselineFailed) as fault:
        swept(request_of([RATES]), Held(loss), tmp_path / "held")
    run = read_back(tmp_path / "held").sweep
    assert run is not None
    name = run.trials[0].run
    assert str(fault.value) == f"{name} is held in the queue: held by you; gputui queue release {name}"


def test_a_resumed_sweep_has_its_minutes_and_those_that_are_added(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = folder.create(request_of([RATES], minutes=10.0))
    record = folder.empty_record(made.path, made.request)
    record.state = "stopped"
    record.put("ended")
    asked = sweep_request.resumed(made, 2.5)
    assert asked.sweep is not None
    assert (asked.sweep.minutes, asked.limit_seconds) == (12.5, 750.0)
    assert sweep_request.resumed(made) == made.request
    begun: list[Any] = []
    monkeypatch.setattr(
        proof_start, "start_again", lambda proof, anyway, changed: begun.append((proof, anyway, changed))
    )
    sweep_request.resume(made, 2.5)
    assert begun == [(made, True, asked)], "its trials wait in the queue, whatever else trains"
    record.state = "done"
    record.put("ended")
    with pytest.raises(ProofError, match="gputui sweep --resume ID --minutes N goes on with it"):
        sweep_request.resumed(made)
    assert runs_folder().parent == home
