"""What a user is asked about proofs and starts: the whole question, its answers, and what follows from each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.leases.lease import NotFree
from gputui.engine.leases.memory_needs import NotMeasuredError
from gputui.engine.proof import duration, folder, proof_start, request
from gputui.engine.proof.folder import Proof
from gputui.engine.runs import RunError
from gputui.engine.scaling import scaling_request
from gputui.engine.sweep import sweep_request
from gputui.engine.tune import tune_request
from gputui.tui.screens import starting
from gputui.tui.screens.proof import actions
from gputui.tui.screens.proof.actions import AskMinutes

from tests.support import recorded
from tests.support.answering import Answering
from tests.support.recorded_proof import DIAGNOSIS, HEALTHY, write_proof
from tests.support.recorded_search import ENDED, write_search
from tests.support.typed import as_read

BUSY = "the run 20260921-100000-cnn is running"
SLOWER = (
    "The run 20260921-100000-cnn is running on the same devices: at the same time both are slower, or run out of "
    "memory.\nStart anyway?"
)
DISTURBED = (
    "The run 20260921-100000-cnn is running on the same devices, and would disturb the measurements: the figures are "
    "worse, and the result says so.\nMeasure anyway?"
)


def noting(calls: list[Any], returned: Any) -> Callable[..., Any]:
    """A function that keeps what it is called with: one argument as it is."""

    def note(*given: Any) -> Any:
        calls.append(given[0] if len(given) == 1 else given)
        return returned

    return note


def start(busy: str = "", launched: Any = ("run", "process"), measures: bool = False) -> starting.Start:
    def launch() -> Any:
        if isinstance(launched, Exception):
            raise launched
        return launched

    return starting.Start("fast", lambda: busy, launch, lambda: "place 2 in the queue", measures)


# ---- starting -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("busy", "measures", "answer", "question", "choice", "told"),
    [
        ("", False, None, [], "Start anyway", []),
        ("", True, None, [], "Start anyway", []),
        (BUSY, False, "Start anyway", [(SLOWER, ("Wait for it", "Start anyway", "Cancel"))], "Start anyway", []),
        (BUSY, True, "Measure anyway", [(DISTURBED, ("Wait for it", "Measure anyway", "Cancel"))], "Measure anyway",
         []),
        (BUSY, False, "Wait for it", [(SLOWER, ("Wait for it", "Start anyway", "Cancel"))], "Wait for it",
         ["queued: fast, place 2 in the queue"]),
        (BUSY, False, None, [(SLOWER, ("Wait for it", "Start anyway", "Cancel"))], "Cancel", []),
    ],
)  # fmt: skip
def test_busy_devices_lead_to_a_question_and_only_waiting_puts_the_start_in_the_queue(
    busy: str, measures: bool, answer: str | None, question: list[Any], choice: str, told: list[str]
) -> None:
    app = Answering(answer)
    assert asyncio.run(starting.choice_if_busy(app, start(busy, measures=measures))) == choice
    assert (app.asked, app.told) == (question, told)


@pytest.mark.parametrize(
    ("fault", "answer", "question", "told"),
    [
        (NotFree("needs 1 GPU; GPU 0: used"), "Queue it", "fast needs 1 GPU; GPU 0: used.",
         ["queued: fast, place 2 in the queue"]),
        (NotFree("GPU 0 is used by bob"), "Cancel", "GPU 0 is used by bob.", []),
        (NotFree("GPU 0 is used by bob"), None, "GPU 0 is used by bob.", []),
    ],
)  # fmt: skip
def test_gpus_that_are_not_free_are_waited_for_only_if_the_user_says_so(
    fault: NotFree, answer: str | None, question: str, told: list[str]
) -> None:
    app = Answering(answer)
    assert asyncio.run(starting.ask_and_launch(app, start(launched=fault))) is None
    assert (app.asked, app.told) == ([(question, ("Queue it", "Cancel"))], told)


@pytest.mark.parametrize("fault", [NotMeasuredError("needs its memory measured"), RunError("no"), OSError("no")])
def test_other_faults_of_a_launch_ask_nothing(fault: Exception) -> None:
    app = Answering()
    with pytest.raises(type(fault)):
        asyncio.run(starting.ask_and_launch(app, start(launched=fault)))
    assert app.asked == []


def test_a_measurement_that_was_launched_is_opened_and_its_process_kept() -> None:
    app = Answering("Cancel")
    assert asyncio.run(starting.launch_and_open(app, start(launched=("proof", "process"))))
    assert (app.opened, app.engines) == ([("proof", "proof")], ["process"])
    assert not asyncio.run(starting.launch_and_open(app, start(BUSY)))
    assert (app.opened, app.engines) == ([("proof", "proof")], ["process"])


def test_a_run_that_conflicts_leaves_the_warm_engine_to_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    app, warm = Answering(), SimpleNamespace(start=lambda preset: ("run", preset.name))
    app.warm = warm  # type: ignore[assignment]
    monkeypatch.setattr("gputui.tui.base.warm_engine.take", lambda app: warm)
    here = SimpleNamespace(gpus=())

    def check(*_: Any) -> Any:
        raise starting.ConflictError(here, (SimpleNamespace(level="error"),))  # type: ignore[arg-type]

    new = starting.new_run(app, presets.resolve("quickstart"))
    assert (new.title, new.measures) == ("quickstart", False)
    assert new.launch() == ("run", "quickstart")
    app.warm = None
    monkeypatch.setattr(starting, "_check", check)
    with pytest.raises(starting.ConflictError):
        new.launch()
    assert app.warm is warm


def test_a_resumed_measurement_is_not_in_its_own_way_and_ends_the_warm_engine_first(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof, order = write_proof(home), list[str]()
    asked = request.of_change("quickstart", ["steps_per_execution=4"])
    monkeypatch.setattr(Proof, "request", asked)
    monkeypatch.setattr(proof_start, "blocks", lambda *given: ", ".join(map(str, given[2:])) or "nobody")
    monkeypatch.setattr("gputui.tui.base.warm_engine.close", lambda app: order.append("warm"))

    def launch(given: Any) -> Any:
        order.append("launched")
        return given, "process"

    def resume() -> Any:
        order.append("resumed")
        return "process"

    monkeypatch.setattr(folder, "launch", launch)
    new = starting.new_measurement(Answering(), "the proof", asked)
    again = starting.resumed_measurement(Answering(), "again", proof, resume, lambda: asked)
    assert (new.title, new.measures, again.title, again.measures) == ("the proof", True, "again", True)
    assert (new.in_the_way(), again.in_the_way()) == ("nobody", str(proof.path))
    assert (again.launch(), new.launch()) == ((proof, "process"), (asked, "process"))
    assert order == ["warm", "resumed", "warm", "launched"]


# ---- proofs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "what"), [("ab", "proof"), ("tune", "search"), ("sweep", "sweep")])
@pytest.mark.parametrize(
    ("answer", "fault", "told"),
    [
        ("Stop", None, ["stopping: the current trial is ended first"]),
        ("Stop", RunError("it has ended"), ["it has ended (error)"]),
        ("Stop", PermissionError(1, "no"), ["[Errno 1] no (error)"]),
        ("Go on", None, []),
        (None, None, []),
    ],
)
def test_a_proof_is_stopped_only_after_a_question(
    home: Path, monkeypatch: pytest.MonkeyPatch, kind: str, what: str, answer: str | None,
    fault: Exception | None, told: list[str],
) -> None:  # fmt: skip
    stopped: list[Proof] = []

    def stop(proof: Proof) -> None:
        stopped.append(proof)
        if fault is not None:
            raise fault

    monkeypatch.setattr(folder, "request_stop", stop)
    app, proof = Answering(answer), write_proof(home)
    asyncio.run(actions.stop(app, proof, kind))
    question = (
        f"Stop the {what}? Its current trial is ended first; results so far and changes that were kept stay.\n"
        "Stop it a second time to end it at once."
    )
    assert (app.asked, app.told) == ([(question, ("Stop", "Go on"))], told)
    assert stopped == ([proof] if answer == "Stop" else [])


@pytest.mark.parametrize(
    ("state", "seconds", "answer", "minutes"),
    [
        ("stopped", 599.9, None, None),  # the limit of the search are ten minutes
        ("stopped", 600.0, "2.5", 2.5),
        ("failed", 600.1, "3", 3.0),
        ("done", 1.0, "20", 20.0),
    ],
)
def test_a_search_gets_more_minutes_only_if_its_own_are_used_up(
    home: Path, monkeypatch: pytest.MonkeyPatch, state: str, seconds: float, answer: str | None, minutes: float | None
) -> None:
    resumed: list[Any] = []
    monkeypatch.setattr(tune_request, "resume", noting(resumed, "process"))
    monkeypatch.setattr(proof_start, "blocks", lambda *_: "")
    monkeypatch.setattr(Proof, "request", None)
    proof = write_search(home, state=state, seconds=seconds)
    data = as_read(ENDED | {"state": state, "seconds": seconds})
    assert data.search is not None
    data.search.limits = replace(data.search.limits, minutes=10.0)
    app = Answering(answer)
    asyncio.run(actions.go_on(app, proof, data))
    assert app.asked == ([("How many more minutes?", "2")] if minutes is not None else [])
    assert resumed == [(proof, True, minutes)]
    assert (app.told, app.engines) == (["the search goes on"], ["process"])
    resumed.clear()
    if minutes is not None:
        app.answers = [None]
        asyncio.run(actions.go_on(app, proof, data))
        assert (resumed, app.told) == ([], ["the search goes on"])


def test_what_keeps_a_measurement_from_going_on_is_said(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof_start, "blocks", lambda *_: "")
    monkeypatch.setattr(Proof, "request", None)
    proof, app = write_proof(home), Answering()

    def refuse() -> Any:
        raise RunError("its preset was changed")

    asyncio.run(actions.resume(app, proof, "sweep", refuse, lambda: pytest.fail("it was queued")))
    assert (app.told, app.engines) == (["its preset was changed (error)"], [])


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("0.1", ""), ("100000", ""), ("1e5", ""), (" 20 ", ""),
        ("0.09", "give minutes from 0.1 to 100,000"), ("100001", "give minutes from 0.1 to 100,000"),
        ("nan", "give minutes from 0.1 to 100,000"), ("ten", "'ten' is no number of minutes"),
    ],
)  # fmt: skip
def test_minutes_have_limits(text: str, refusal: str) -> None:
    assert AskMinutes("").refuse(text) == refusal


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A request whose trials take a known time: 30 s with 5 s of measuring, by other trials."""
    asked = request.of_change("quickstart", ["steps_per_execution=4"])
    asked = replace(asked, repeats=3, measure_seconds=5.0)
    monkeypatch.setattr(request, "of_run", lambda run: asked)
    monkeypatch.setattr(request, "refuse", lambda *_: None)
    monkeypatch.setattr(duration, "of_request", lambda asked: 30.0)
    return asked


@pytest.mark.parametrize(
    ("diagnosis", "changes", "all_of_them"),
    [
        (DIAGNOSIS, "3 changes", "9 min"), ({}, "", ""), (HEALTHY, "", ""),
        ({"remedies": [{"advice": "look after the disk"}]}, "", ""),
    ],
)  # fmt: skip
def test_before_a_proof_the_user_is_told_what_is_measured_and_how_long_it_takes(
    home: Path, quick: Any, monkeypatch: pytest.MonkeyPatch, diagnosis: Any, changes: str, all_of_them: str
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(folder, "launch", noting(started, ("proof", "process")))
    monkeypatch.setattr(proof_start, "blocks", lambda *_: "")
    run = recorded.write(home, gpus=0, seconds=20)
    app = Answering("Cancel", "Prove")
    asyncio.run(actions.prove(app, run, diagnosis))
    if not changes:
        assert app.told == ["there is nothing to prove: the diagnosis proposes no change of options"]
        assert app.asked == []
        return
    question = (
        f"Prove it by measuring? {changes} to try, one after the other, each in 3 pairs of trials of 5 s (at least 20 "
        "steps), with and without it; what is not clearly faster is not kept.\n\n"
        f"Each change takes about 3 min, all of them about {all_of_them}. Run nothing else on the machine meanwhile. "
        "You may leave the screen of the proof; x there stops the proof."
    )
    assert app.asked == [(question, ("Prove", "Cancel"))]
    assert started == []
    asyncio.run(actions.prove(app, run, diagnosis))
    assert (started, app.opened, app.engines) == ([quick], [("proof", "proof")], ["process"])
    monkeypatch.setattr(request, "refuse", _refused)
    asyncio.run(actions.prove(app, run, diagnosis))
    assert app.told == ["cannot be proved: there is no GPU (error)"]


def _refused(*_: Any) -> None:
    raise RunError("there is no GPU")


@pytest.mark.parametrize(("answer", "keep"), [("Weak", "per-replica"), ("Strong", "global"), ("Cancel", "")])
def test_the_kind_of_scaling_is_asked_for_and_then_its_time(
    monkeypatch: pytest.MonkeyPatch, answer: str, keep: str
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(request, "refuse", lambda *_: None)
    monkeypatch.setattr(folder, "launch", noting(started, ("proof", "process")))
    monkeypatch.setattr(proof_start, "blocks", lambda *_: "")
    monkeypatch.setattr(duration, "times_of", lambda asked: SimpleNamespace(seconds=lambda s: 4 * s, source="guessed"))
    settings = ("device.visible=none", "logical_devices=2", "strategy.kind=mirrored")
    preset = presets.resolve("quickstart", settings)
    app = Answering(answer, "Measure")
    app.set_keymap({"stop": "ctrl+x"})
    asyncio.run(actions.measure_scaling(app, preset, None))
    which = (
        "Measure how the speed grows with the number of replicas?\n\nWeak scaling keeps the batch of each replica, so "
        "that the global batch grows with them; strong scaling keeps the global batch."
    )
    assert app.asked[0] == (which, ("Weak", "Strong", "Cancel"))
    assert len(app.asked) == (2 if keep else 1)
    if keep:
        asked = scaling_request.of_opened(preset, None, keep)
        trials = duration.sure_trials(asked)
        assert app.asked[1] == (
            f"quickstart is trained with 1, 2 replicas in turn, in {asked.repeats} rounds of trials of "
            f"{asked.measure_seconds:g} s. This takes about {trials * 4 * asked.measure_seconds / 60:.0f} min "
            "(guessed).\n\nRun nothing else on the machine meanwhile. You may leave the screen; ctrl+x stops "
            "the measurement.",
            ("Measure", "Cancel"),
        )
        assert [each.scaling.keep for each in started] == [keep]
        monkeypatch.setattr(request, "refuse", _refused)
        app.answers = [answer]
        asyncio.run(actions.measure_scaling(app, preset, None))
        assert app.told == ["cannot be measured: there is no GPU (error)"]


@pytest.mark.parametrize(
    ("answer", "fault", "told"),
    [
        ("Stop it", None, ["stopping after this step; press ctrl+b again when the run has ended"]),
        ("Stop it", RunError("it has ended"), ["it has ended (error)"]),
        ("Keep it going", None, []),
        (None, None, []),
    ],
)
def test_a_run_that_goes_on_is_stopped_before_a_proof_only_if_the_user_says_so(
    home: Path, monkeypatch: pytest.MonkeyPatch, answer: str | None, fault: Exception | None, told: list[str]
) -> None:
    stopped: list[Any] = []

    def stop(run: Any) -> None:
        stopped.append(run)
        if fault is not None:
            raise fault

    monkeypatch.setattr("gputui.engine.runs.request_stop", stop)
    run = recorded.write(home, gpus=0, seconds=20, outcome=None, engine_pid=os.getpid())
    app = Answering(answer)
    app.set_keymap({"prove": "ctrl+b"})
    asyncio.run(actions.prove(app, run, DIAGNOSIS))
    question = (
        "The run has not ended and would disturb the measurements: it has to end first.\nStop it after this step?"
    )
    assert (app.asked, app.told) == ([(question, ("Stop it", "Keep it going"))], told)
    assert stopped == ([run] if answer == "Stop it" else [])


def test_scaling_and_sweeps_go_on_with_what_they_were(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resumed: list[Any] = []
    monkeypatch.setattr(scaling_request, "resume", lambda proof, anyway=False: resumed.append((proof, anyway)))
    monkeypatch.setattr(sweep_request, "resume", lambda proof: resumed.append(proof))
    monkeypatch.setattr(proof_start, "blocks", lambda *_: "")
    monkeypatch.setattr(Proof, "request", None)
    app, proof = Answering(), write_proof(home)
    asyncio.run(actions.go_on_with_scaling(app, proof))
    asyncio.run(actions.go_on_with_sweep(app, proof))
    assert resumed == [(proof, True), proof]
    assert app.told == ["the measurement goes on", "the sweep goes on"]


# ---- files of proofs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "there", "answer", "written"),
    [
        ("report.md", False, None, "here/report.md"), (" report.md ", False, None, "here/report.md"),
        ("~/mine.md", False, None, "mine.md"), ("report.md", True, "Overwrite", "here/report.md"),
        ("report.md", True, "Cancel", ""), ("report.md", True, None, ""), ("  ", False, None, ""),
        (None, False, None, ""),
    ],
)  # fmt: skip
def test_a_report_is_written_to_the_path_that_the_user_gives(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None, there: bool, answer: str | None,
    written: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("HOME", str(tmp_path))
    here = tmp_path / "here"
    here.mkdir()
    if there:
        (here / "report.md").write_text("mine")
    proof, app = write_proof(home), Answering(given, answer)
    asyncio.run(actions.save_report(app, proof, proof.record, here))
    assert app.asked[0] == ("Save the report as Markdown to this path", f"proof-{proof.id}.md")
    assert app.asked[1:] == ([(f"{here / 'report.md'} exists.", ("Overwrite", "Cancel"))] if there else [])
    assert app.told == ([f"Saved: {tmp_path / written}"] if written else [])
    if written:
        assert "cache=memory" in (tmp_path / written).read_text()
    elif there:
        assert (here / "report.md").read_text() == "mine"


def test_a_report_that_cannot_be_written_is_said_with_its_path_and_its_reason(home: Path, tmp_path: Path) -> None:
    proof, app = write_proof(home), Answering("no/such.md")
    asyncio.run(actions.save_report(app, proof, proof.record, tmp_path))
    assert app.told == [f"{tmp_path}/no/such.md cannot be written: No such file or directory (error)"]


@pytest.mark.parametrize("fault", [KeyError("comparisons"), TypeError("no number"), ValueError("no trial")])
def test_a_report_of_a_damaged_proof_is_said_to_be_unwritten(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def damaged(_: object) -> str:
        raise fault

    monkeypatch.setattr(actions, "as_markdown", damaged)
    proof, app = write_proof(home), Answering("a.md")
    asyncio.run(actions.save_report(app, proof, proof.record, tmp_path))
    assert app.told == [f"{tmp_path}/a.md cannot be written: {fault} (error)"]
    assert not (tmp_path / "a.md").exists()


def test_the_improved_preset_is_written_next_to_the_proof_and_opened(home: Path) -> None:
    proof, app = write_proof(home), Answering()
    asyncio.run(actions.open_improved(app, proof, "train: {epochs: 3}\n"))
    assert app.opened == [("form", proof.path / "improved.yaml")]
    assert (proof.path / "improved.yaml").read_text() == "train: {epochs: 3}\n"
    (proof.path / "improved.yaml").unlink()
    (proof.path / "improved.yaml").mkdir()
    app.opened.clear()
    asyncio.run(actions.open_improved(app, proof, ""))
    assert app.opened == []
    assert app.told == [f"{proof.path / 'improved.yaml'} cannot be written: Is a directory (error)"]


@pytest.mark.parametrize(
    ("state", "source", "opened", "told"),
    [
        ("done", True, "batch_size=256, policy=mixed_bfloat16, cache=memory", []),
        ("stopped", True, "batch_size=256, policy=mixed_bfloat16, cache=memory (not proved)",
         ["batch_size=256, policy=mixed_bfloat16, cache=memory: not proved: +256 % in single trials"]),
        ("done", False, "", []),
    ],
)  # fmt: skip
def test_settings_of_a_search_are_put_into_the_form_with_the_mark_of_those_that_are_not_proved(
    home: Path, tmp_path: Path, state: str, source: bool, opened: str, told: list[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("extends: quickstart\n")
    ended: dict[str, Any] = {"changes_kept": {}, "gain_total": None, "comparisons": []} if state == "stopped" else {}
    proof = write_search(home, state=state, **ended)
    (proof.path / "request.json").write_text(request.of_preset("tune", str(file), ()).to_json())
    if not source:
        file.unlink()
    app = Answering()
    asyncio.run(actions.apply_kept(app, proof, proof.record))
    assert app.told == told
    if source:
        kept = {"input.batch_size": 256, "precision.policy": "mixed_bfloat16", "input.cache": "memory"}
        assert app.opened == [("apply_to_preset", (file, kept, opened))]
    else:
        assert app.opened == [("form", proof.path / "improved.yaml")]
        assert presets.resolve(str(proof.path / "improved.yaml")).options.input.batch_size == 256
