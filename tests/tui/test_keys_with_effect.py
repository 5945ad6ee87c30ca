"""Which keys of a screen have an effect in each state of a run, a proof or a measurement, and what the others say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from gputui.engine.proof.folder import Proof
from gputui.engine.runs import Run
from gputui.engine.runs.titles import Title
from gputui.engine.trials.record import UNREAD
from gputui.tui.drawing.plot.viewport import Viewport
from gputui.tui.reading.queue_places import Waiting
from gputui.tui.reading.run.reader import Picture
from gputui.tui.reading.run.snapshot import Message, Snapshot
from gputui.tui.reading.run_list import Entry
from gputui.tui.reading.sweep_rows import SweepEntry
from gputui.tui.screens.live.screen import LiveScreen
from gputui.tui.screens.proof.scaling import ScalingScreen
from gputui.tui.screens.proof.screen import ProofScreen
from gputui.tui.screens.proof.sweep import SweepScreen
from gputui.tui.screens.runs.screen import RunsScreen
from gputui.tui.screens.tune.screen import TuneScreen

from tests.support.answering import Answering
from tests.support.recorded_proof import PROOF
from tests.support.recorded_search import ENDED
from tests.support.typed import as_read

RUN = Run(Path("/runs/20260921-100000-cnn"))
STEPS = {"step": 5, "steps": 10}
HINT = Message("oom", "out of memory", "try input.batch_size=16")


def live(now: Snapshot, **states: Any) -> LiveScreen:
    screen = LiveScreen(RUN, states.pop("replay_speed", None))
    screen.set_reactive(cast("Any", LiveScreen).latest, Picture(now))
    for name, state in states.items():
        setattr(screen, name, state)
    return screen


def placed(cursor: float | None, hovers: bool = False, window: tuple[float, float] | None = None) -> Viewport:
    view = Viewport()
    view.cursor, view.hovers, view.window = cursor, hovers, window
    return view


GOES_ON = Snapshot(phase="training", started={"step": 0}, progress=STEPS)
DONE = replace(GOES_ON, outcome="ok")
FAILED = replace(GOES_ON, outcome="oom", error=HINT)
STARTS = Snapshot(phase="importing")
NO_HINT = replace(FAILED, error=Message("error", "no such folder", "look at workload.data"))
STATES: dict[str, tuple[Snapshot, dict[str, Any]]] = {
    "starts": (STARTS, {"goes_on_at_first": True}),
    "goes on": (GOES_ON, {"goes_on_at_first": True}),
    "not known": (GOES_ON, {}),  # its end is not in its events
    "done": (DONE, {}),
    "failed": (FAILED, {}),
    "ended meanwhile": (FAILED, {"goes_on_at_first": True}),
    "no checkpoint": (NO_HINT, {"has_checkpoint": False}),
    "replay": (GOES_ON, {"replay_speed": 8.0}),
    "waits": (STARTS, {"waiting": Waiting("r1", 1)}),
    "waits again": (DONE, {"waiting": Waiting("r1", 1)}),
    "held": (STARTS, {"waiting": Waiting("r1", 1, held=True)}),
    "Slurm": (STARTS, {"waiting": Waiting("r1", None)}),
}
ALL = set(STATES)
NEVER_BEGUN = {"waits", "held", "Slurm"}
ENDED_ONES = {"done", "failed", "ended meanwhile", "no checkpoint"}


@pytest.mark.parametrize(
    ("action", "parameters", "states"),
    [
        ("stop", (), {"starts", "goes on", "not known"}),
        ("again", (), ENDED_ONES | {"replay", "waits again"}),
        ("resume", (), {"not known", "failed", "ended meanwhile"}),
        ("change", (), ALL - {"replay"}),
        ("chart", (), ALL - NEVER_BEGUN - {"starts"}),
        ("move", (), ALL - NEVER_BEGUN - {"starts"}),
        ("zoom_axis", (), ALL - NEVER_BEGUN - {"starts"}),
        ("apply", (), {"failed", "ended meanwhile"}),
        ("zoom", ("messages",), {"failed", "ended meanwhile", "no checkpoint"}),
        ("zoom", ("log",), ALL - NEVER_BEGUN),
        ("diagnosis", (), ALL - NEVER_BEGUN),
        ("search", (), ALL - NEVER_BEGUN),
        ("found", (), set()),
        ("page", (), set()),
        ("all", (), set()),
        ("pick", (), set()),
        ("pick_edge", (), set()),
        ("note", (), ALL),
        ("take_out", (), NEVER_BEGUN | {"waits again"}),
        ("move_waiting", (), {"waits", "waits again", "held"}),
        ("hold_waiting", (), {"waits", "waits again", "Slurm"}),
        ("release_waiting", (), {"held"}),
    ],
)
def test_the_keys_of_a_run_follow_its_state(action: str, parameters: tuple[Any, ...], states: set[str]) -> None:
    found = {name for name, (now, fields) in STATES.items() if live(now, **fields).check_action(action, parameters)}
    assert found == states


def test_keys_that_depend_on_what_is_shown() -> None:
    warned = replace(GOES_ON, warnings=(Message("warning", "slow"),))
    assert live(warned).check_action("zoom", ("messages",))
    for zoom, works in (("gpus", True), ("log", False), ("", False)):
        screen = live(GOES_ON, zoom=zoom)
        assert [screen.check_action(action, ()) for action in ("pick", "pick_edge")] == [works] * 2
    for view, works in (
        (placed(None), False), (placed(3.0), True), (placed(3.0, hovers=True), False),
        (placed(None, window=(1.0, 2.0)), True), (placed(3.0, True, (1.0, 2.0)), True),
    ):  # fmt: skip
        screen = live(GOES_ON, view=view)
        assert screen.check_action("all", ()) is works
        assert screen.labels_now == ({"back": "Show all"} if works else {})


# ---- proofs ---------------------------------------------------------------------------------------------


def shown(kind: type[ProofScreen | TuneScreen], **fields: Any) -> Any:
    """The screen of a proof with these fields; None of them: it has not been read."""
    screen = kind(Proof(Path("/proofs/20260921-130000-x")))
    plain = (ENDED if kind is TuneScreen else PROOF) | fields
    screen.data = as_read(plain) if fields else UNREAD
    return screen


ACTIONS = ("stop", "resume", "again", "open", "apply", "save", "save_report", "copy")


def works(screen: Any) -> set[str]:
    named = {
        binding.action.partition("(")[0] for binding in screen._bindings.key_to_bindings.values() for binding in binding
    }
    return {action for action in ACTIONS if action in named and screen.check_action(action, ())}


@pytest.mark.parametrize(
    ("kind", "fields", "actions"),
    [
        (ProofScreen, {}, set()),
        (ProofScreen, {"state": "running", "preset_after": None}, {"stop", "save_report", "copy"}),
        (ProofScreen, {"state": "running", "preset_after": "train: {}"}, {"stop", "open", "save_report", "copy"}),
        (ProofScreen, {"state": "done", "preset_after": "train: {}"}, {"open", "save_report", "copy"}),
        (ProofScreen, {"state": "stopped", "preset_after": None}, {"save_report", "copy"}),
        (ScalingScreen, {}, set()),
        (ScalingScreen, {"state": "running", "preset_after": None}, {"stop", "save_report", "copy"}),
        (ScalingScreen, {"state": "stopped", "preset_after": None}, {"resume", "again", "save_report", "copy"}),
        (ScalingScreen, {"state": "crashed", "preset_after": None}, {"resume", "again", "save_report", "copy"}),
        (ScalingScreen, {"state": "failed", "preset_after": None}, {"resume", "again", "save_report", "copy"}),
        (ScalingScreen, {"state": "done", "preset_after": "x"}, {"open", "again", "save_report", "copy"}),
        (TuneScreen, {}, set()),
        (TuneScreen, {"state": "running", "changes_kept": {}}, {"stop", "save_report", "copy"}),
        (TuneScreen, {"state": "running"}, {"stop", "apply", "save", "save_report", "copy"}),
        (TuneScreen, {"state": "stopped"}, {"resume", "apply", "save", "save_report", "copy"}),
        (TuneScreen, {"state": "failed"}, {"resume", "apply", "save", "save_report", "copy"}),
        (TuneScreen, {"state": "done"}, {"apply", "save", "save_report", "copy"}),
        (TuneScreen, {"state": "done", "ended_because": "the time budget of 10 min"},
         {"resume", "apply", "save", "save_report", "copy"}),
    ],
)  # fmt: skip
def test_the_keys_of_a_proof_follow_its_state(kind: Any, fields: dict[str, Any], actions: set[str]) -> None:
    assert works(shown(kind, **fields)) == actions


PROVES = "a search proves its best settings by itself; R gives it more minutes"
NONE_YET = "the search has not ended: nothing can be taken yet"
PROVED = "every option was tried, and its gain is proved: there is nothing to measure with more minutes"


@pytest.mark.parametrize(
    ("kind", "fields", "why"),
    [
        (ProofScreen, {"state": "running"}, {"stop": "it has ended", "file": "there is no improved preset so far"}),
        (ProofScreen, {"state": "done"},
         {"stop": "it has ended", "file": "there is no improved preset: no change was kept"}),
        (ScalingScreen, {"state": "running"},
         {"resume": "it goes on", "start": "it goes on",
          "file": "there is no improved preset: more replicas change no preset"}),
        (ScalingScreen, {"state": "done"},
         dict.fromkeys(("resume", "stop"), "it has ended; r measures the same once more")),
        (SweepScreen, {"state": "running"}, {"resume": "it goes on", "compare": "there are no two runs to compare"}),
        (SweepScreen, {"state": "done"},
         {"resume": "it has ended", "compare": "there are no two runs to compare", "stop": "it has ended"}),
        (TuneScreen, {"state": "running"},
         {"prove": PROVES, "resume": "the search goes on", "apply": NONE_YET, "save": NONE_YET}),
        (TuneScreen, {"state": "done"}, {"prove": PROVES, "stop": "the search has ended", "resume": PROVED}),
    ],
)  # fmt: skip
def test_a_key_without_an_effect_says_why(
    monkeypatch: pytest.MonkeyPatch, kind: Any, fields: dict[str, Any], why: dict[str, str]
) -> None:
    app = Answering()
    screen = shown(kind, **fields)
    monkeypatch.setattr(type(screen), "app", app)
    assert {verb: screen.why_not(verb) for verb in why} == why


# ---- the list of runs -----------------------------------------------------------------------------------


class Runs(RunsScreen):
    """The list with a row under the cursor, without its table."""

    at: Entry | None = None

    @property
    def current(self) -> Entry | None:
        return self.at


def entry(state: Any, **fields: Any) -> Entry:
    return Entry(RUN, state, Title("cnn"), **fields)


ROWS = {
    "nothing": None,
    "goes on": entry("running", has_checkpoint=True),
    "done": entry("ok", has_checkpoint=True),
    "stopped": entry("stopped", has_checkpoint=True),
    "no checkpoint": entry("oom"),
    "waits": entry("waiting", waiting=Waiting("r1", 1), has_checkpoint=True),
    "a sweep": SweepEntry(RUN, "running", Title("s"), trials=(entry("ok"),)),
}


@pytest.mark.parametrize(
    ("action", "rows"),
    [
        ("again", set(ROWS) - {"a sweep"}), ("change", set(ROWS) - {"a sweep"}), ("copy", set(ROWS) - {"a sweep"}),
        ("note", set(ROWS) - {"a sweep"}), ("stop", set(ROWS) - {"a sweep", "waits"}),
        ("resume", {"nothing", "stopped"}),
        ("sweep", {"a sweep"}), ("proofs", set(ROWS) - {"a sweep"}), ("take_out", {"waits"}), ("tags", set(ROWS)),
        ("move_waiting", {"waits"}), ("hold_waiting", {"waits"}), ("release_waiting", set()), ("delete", set(ROWS)),
    ],
)  # fmt: skip
def test_the_keys_of_the_list_of_runs_follow_the_row_under_the_cursor(action: str, rows: set[str]) -> None:
    screen = Runs()
    found = set()
    for name, row in ROWS.items():
        screen.at = row
        found |= {name} if screen.check_action(action, ()) else set()
    assert found == rows


@pytest.mark.parametrize(
    ("action", "rows"),
    [
        ("stop", {"goes on"}), ("resume", {"stopped"}), ("take_back", set()),
        ("undo_list", set()),
        ("delete", set(ROWS)),
    ],
)  # fmt: skip
def test_the_palette_lists_what_has_an_effect_on_the_run_under_the_cursor(
    monkeypatch: pytest.MonkeyPatch, action: str, rows: set[str]
) -> None:
    app = Answering()
    monkeypatch.setattr(Runs, "app", app)
    screen = Runs()
    found = set()
    for name, row in ROWS.items():
        screen.at = row
        found |= {name} if screen.offers(action) else set()
    assert found == rows
    app.acts["runs"].add("deleted 1 run", tuple)
    assert screen.offers("take_back")
    assert screen.offers("undo_list")


def test_an_action_means_the_marked_runs_or_the_row_under_the_cursor() -> None:
    screen, other = Runs(), Run(Path("/runs/20260921-110000-mlp"))
    trial = entry("ok", sweep="s")
    assert (screen.runs_meant, screen.run_meant, screen.current_sweep) == ([], None, None)
    screen.at = entry("ok")
    assert (screen.runs_meant, screen.run_meant, screen.current_sweep) == ([RUN], RUN, None)
    screen.marked = {other.id: other}
    assert (screen.runs_meant, screen.run_meant) == ([other], RUN)
    screen.marked = {}
    screen.at = sweep = SweepEntry(RUN, "running", Title("s"), trials=(trial, trial))
    assert (screen.runs_meant, screen.run_meant, screen.current_sweep) == ([RUN, RUN], None, sweep)
