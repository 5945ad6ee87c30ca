"""The application without a screen: which screen is opened with what, what goes into the form, and what is offered."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import presets, runs
from gputui.engine.files import places
from gputui.engine.proof.folder import Proof
from gputui.engine.runs import Run, trash
from gputui.engine.runs.liveness import Liveness
from gputui.engine.runs.titles import with_name
from gputui.tui import app as application
from gputui.tui import show
from gputui.tui.app import GputuiApp
from gputui.tui.base.base_app import BaseApp
from gputui.tui.base.errors import Refused
from gputui.tui.base.themes import THEMES
from gputui.tui.form.form_state import FormState
from gputui.tui.reading import preset_files
from gputui.tui.screens.compare.screen import CompareScreen
from gputui.tui.screens.live.screen import LiveScreen
from gputui.tui.screens.proof.proofs import ProofsScreen
from gputui.tui.screens.proof.scaling import ScalingScreen
from gputui.tui.screens.proof.screen import ProofScreen
from gputui.tui.screens.proof.sweep import SweepScreen
from gputui.tui.screens.tune.screen import TuneScreen
from textual import constants
from textual.events import Key
from textual.screen import ModalScreen, Screen

from tests.support import recorded
from tests.support.recorded_proof import running, write_proof

STREAMS = ("in", "out", "err")


class Opening(GputuiApp):
    """The application, which is not run. `did` has what it has opened, shown and said; `answer` is that of the user to
    the question about unsaved changes, None if there must be none.
    """

    answer: bool | None = None
    present: Any = None  # the screen in front

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.did: list[Any] = []
        for name in ("load", "apply", "offer", "introduce"):
            setattr(self.form, name, self._noting(name))

    def _noting(self, name: str) -> Any:
        return lambda *given: self.did.append((name, *given))

    @property
    def screen(self) -> Any:
        return self.present

    def open_screen(self, screen: Any, instead: bool = False) -> None:
        self.did.append((screen, instead))

    def action_show(self, name: str) -> None:
        self.did.append(name)

    def call_from_thread(self, do: Any, *given: Any, **named: Any) -> Any:  # type: ignore[override]
        return do(*given, **named)

    def notify(self, message: str, **more: Any) -> None:
        self.did.append(message if not more else (message, more.get("severity", more.get("title", ""))))

    def clear_notifications(self) -> None:
        self.did.append("cleared")

    async def form_is_safe(self) -> bool:
        if self.answer is None:
            assert await super().form_is_safe()
            return True
        return self.answer


def call(app: GputuiApp, name: str, *given: Any) -> None:
    """Call a method that works in the background, and wait for its end."""
    result = getattr(GputuiApp, name).__wrapped__(app, *given)
    if asyncio.iscoroutine(result):
        asyncio.run(result)


# ---- screens --------------------------------------------------------------------------------------------


def test_only_the_watched_run_is_replayed_and_a_screen_of_the_same_kind_is_replaced() -> None:
    first, second = Run(Path("/runs/first")), Run(Path("/runs/second"))
    app = Opening(None, first, 8.0)
    app.open_run(first)
    app.present = app.did[0][0]
    app.open_run(second)
    app.open_compare([first, second])
    screens = [screen for screen, _ in app.did]
    assert [type(screen) for screen in screens] == [LiveScreen, LiveScreen, CompareScreen]
    assert [instead for _, instead in app.did] == [False, True, False]
    assert [(screen.run_folder, screen.replay_speed) for screen in screens[:2]] == [(first, 8.0), (second, None)]
    assert screens[2].runs == [first, second]


@pytest.mark.parametrize(
    ("kind", "screen"),
    [("tune", TuneScreen), ("scaling", ScalingScreen), ("sweep", SweepScreen), ("ab", ProofScreen), ("", ProofScreen)],
)
def test_each_kind_of_proof_has_its_screen(monkeypatch: pytest.MonkeyPatch, kind: str, screen: type[Any]) -> None:
    monkeypatch.setattr(Proof, "record", SimpleNamespace(kind=kind))
    app, proof = Opening(), Proof(Path("/proofs/x"))
    app.present = ProofsScreen()
    call(app, "open_proof", proof)
    ((opened, instead),) = app.did
    assert (type(opened), opened.proof, instead) == (screen, proof, False)


def test_the_live_view_shows_the_run_that_trains_or_begins_else_the_newest(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Run] = []
    monkeypatch.setattr(Opening, "open_run", lambda app, run: shown.append(run))
    app = Opening()
    app.set_keymap({"start": "left_square_bracket"})
    call(app, "_open_latest")
    assert app.did == [("No runs so far: [ starts one from the form.", "")]
    made = [recorded.write(home, name=f"20260921-1{n}0000-cnn", gpus=0, seconds=20) for n in range(3)]
    states: dict[str, str] = {}
    monkeypatch.setattr(Run, "state", property(lambda run: states.get(run.id, "ok")))
    for state in (None, "stopping", "starting", "running"):
        if state is not None:
            states[made[1].id] = state
        app.did.clear()
        call(app, "_open_latest")
        call(app, "_offer_running")
        under_way = state in ("starting", "running")
        assert shown.pop() == made[1 if under_way else 2], state
        assert app.did == ([("offer", with_name(made[1]))] if under_way else [])
    assert shown == []
    states[made[0].id] = "running"
    app.did.clear()
    call(app, "_offer_running")
    assert app.did == [("offer", with_name(made[1]))], "the newest of two"


def test_a_place_is_uncovered_if_it_is_open_and_the_live_view_is_that_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    uncovered: list[Any] = []
    is_open = [False]

    def uncover(_app: Any, kind: type[Any]) -> bool:
        uncovered.append(kind)
        return is_open[0]

    monkeypatch.setattr(Opening, "_uncover", uncover)
    monkeypatch.setattr(Opening, "_open_latest", lambda app: app.did.append("latest"))
    app = Opening()
    for name, kind in (("live", LiveScreen), ("proofs", ProofsScreen)):
        for is_open[0] in (True, False):
            app.did.clear()
            GputuiApp.action_show(app, name)
            assert uncovered.pop() is kind
            assert len(app.did) == (not is_open[0])
        assert app.did == ["latest"] if name == "live" else type(app.did[0][0]) is kind


def test_gputui_introduces_itself_only_to_a_user_without_runs(home: Path) -> None:
    app = Opening()
    call(app, "_offer_running")
    assert app.did == [("introduce",)]


def test_what_the_application_says_by_itself_and_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    app, pushed = Opening(), list[Any]()
    app._asking("/opt/python\x1b")
    app.set_keymap({"quit": "left_square_bracket"})
    app.action_help_quit()
    assert app.did == [
        ("asking /opt/python? what is installed for it ...", ""),
        ("[ quits gputui; runs and proofs go on without it", ""),
    ]  # fmt: skip
    monkeypatch.setattr(Opening, "push_screen", lambda app, screen: pushed.append(screen))
    app.settings.problems = ["one", "two"]
    app.action_faults()
    assert [str(screen._text(40)) for screen in pushed] == ["Faults in the settings\none\ntwo"]


def test_the_key_of_a_place_leaves_all_dialogs_and_other_keys_are_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[Any] = []
    below = Screen[None]()

    class Covered(Opening):
        """The application with two dialogs over a screen."""

        dialogs = 2

        @property
        def screen_stack(self) -> list[Any]:
            return [below]

        @property
        def screen(self) -> Any:
            return dialog if self.dialogs else below

    class Dialog(ModalScreen[None]):
        def dismiss(self, result: Any = None) -> Any:
            assert result is None
            app.dialogs -= 1

    async def hand_over(_app: Any, event: Any) -> None:
        passed.append(event.key)

    monkeypatch.setattr(BaseApp, "hand_over", hand_over)
    app, dialog = Covered(), Dialog()
    for key, dialogs, did in (("3", 2, []), ("f7", 2, []), ("f4", 0, ["runs"]), ("f5", 0, [])):
        app.did.clear()
        asyncio.run(app.hand_over(Key(key, None)))
        assert (app.dialogs, app.did) == (dialogs, did), key
    assert passed == ["3", "f7", "f5"], "a digit may be typed into a dialog; without one, keys are handed on"


def test_runs_of_other_machines_and_runs_that_have_ended_are_not_named_as_going_on(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = {"b": Liveness(engine=True), "c": Liveness(engine=True, host="other"), "d": Liveness(trainer=True)}
    monkeypatch.setattr(Run, "liveness", property(lambda run: alive.get(run.id, Liveness())))
    for name in "abcd":
        recorded.write(home, name=name, gpus=0, seconds=20)
    assert [run.id for run in Opening().going_on()] == ["b"]


def test_only_proofs_that_measure_now_are_named_as_going_on(home: Path) -> None:
    for name, state in (("a", "stopped"), ("b", "done"), ("c", "failed")):
        write_proof(home, f"20260921-13000{name}-x", state=state)
    going_on = write_proof(home, "20260921-140000-x", **running())
    assert Opening().measuring() == [going_on]


def test_what_earlier_processes_have_left_in_the_trash_of_runs_and_proofs_is_deleted(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[Path] = []
    monkeypatch.setattr(trash, "sweep", swept.append)
    call(Opening(), "_sweep")
    assert swept == [runs.runs_folder(), runs.home() / "proofs"]


# ---- the form -------------------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text("train: {epochs: 3, seed: 5}\n")
    return path


def test_an_opened_preset_goes_into_the_form_and_only_files_of_the_user_become_recent(
    home: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[Path] = []
    monkeypatch.setattr(preset_files, "note", noted.append)
    run = runs.create("quickstart", presets.resolve("quickstart").to_yaml())
    app = Opening()
    for path in (own, presets.SHIPPED / "fast.yaml", run.file("preset.yaml")):
        app.did.clear()
        call(app, "open_form", path)
        shown, cleared, (what, state) = app.did
        assert (shown, cleared, what, state.path) == ("form", "cleared", "load", path)
    assert noted == [own]
    app.did.clear()
    call(app, "open_form", own.with_name("none.yaml"))
    ((message, severity),) = app.did
    assert "no such file" in message
    assert severity == "error"
    app.did.clear()
    app.answer = False
    call(app, "open_form", own)
    assert (app.did, noted) == ([], [own])


def test_changes_are_put_into_the_preset_of_their_run_and_keep_what_the_form_has_changed_of_it(
    home: Path, own: Path
) -> None:
    run = runs.create("quickstart", presets.resolve("quickstart").to_yaml())
    app, changes = Opening(), {"input.batch_size": 16}
    call(app, "apply", run, changes, "batch_size=16")
    shown, (what, state, *given) = app.did
    assert (shown, what, state.path, given) == ("form", "apply", run.file("preset.yaml"), [changes, "batch_size=16"])
    assert state is not app.form.state
    app.form.state = state
    state.set("train.epochs", "9")
    app.did.clear()
    app.answer = False  # nobody is asked, as nothing is lost
    call(app, "apply", run, changes, "batch_size=16")
    assert app.did == ["form", ("apply", state, changes, "batch_size=16")]
    app.form.state = FormState.open(own)
    app.did.clear()
    call(app, "apply", run, changes, "batch_size=16")
    assert app.did == []


def test_proved_settings_are_put_into_the_file_they_were_measured_with(own: Path) -> None:
    app, changes = Opening(), {"input.batch_size": 16}
    options = presets.resolve(str(own), ["seed=7", "batch_size=16"]).options
    call(app, "apply_to_preset", own, changes, options, "batch_size=16")
    shown, (what, state, values, said) = app.did
    assert (shown, what, state.path, said) == ("form", "apply", own, "batch_size=16")
    assert values == {"train.seed": 7, "input.batch_size": 16}, "all that the file does not have"
    app.form.state = state
    app.did.clear()
    app.answer = False
    call(app, "apply_to_preset", own, changes, options, "batch_size=16")
    assert app.did == ["form", ("apply", state, changes, "batch_size=16")], "its other changes stay"
    app.form.state = FormState.first()
    app.did.clear()
    call(app, "apply_to_preset", own, changes, options, "batch_size=16")
    assert app.did == []


def test_only_changes_that_nothing_has_kept_are_asked_about(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[FormState] = []

    async def save_first(_app: Any, state: FormState) -> bool:
        asked.append(state)
        return len(asked) == 2

    monkeypatch.setattr("gputui.tui.screens.presets.saving.save_first", save_first)
    app = GputuiApp(FormState.open(own))
    state = app.form_state
    assert asyncio.run(app.form_is_safe())
    state.set("train.epochs", "9")
    assert [asyncio.run(app.form_is_safe()) for _ in range(2)] == [False, True]
    assert asked == [state, state]
    state.keep()  # a run was started with them
    assert asyncio.run(app.form_is_safe())
    assert len(asked) == 2


def test_the_form_opens_on_what_is_given_else_on_the_last_preset_and_behind_a_watched_run_on_the_first(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "_last_opened", lambda: FormState.open(own))
    assert GputuiApp().form_state.path == own
    assert GputuiApp(None, Run(Path("/runs/x"))).form_state.shipped
    state = FormState.open(presets.SHIPPED / "fast.yaml")
    assert GputuiApp(state, Run(Path("/runs/x"))).form_state is state
    given = GputuiApp(presets.resolve("fast", ["run.python=/usr/bin/python3"]))
    assert (given.form_state.path, given.form_state.name) == (None, "fast")
    assert given.training_python == "/usr/bin/python3"


# ---- settings and pictures ------------------------------------------------------------------------------


def test_faults_of_the_settings_are_said_or_counted_and_listed_in_the_palette() -> None:
    path = places.settings_file()
    path.parent.mkdir(parents=True)
    for text, count in (("", 0), ("a: 1\n", 1), ("a: 1\nb: 2\n", 2), ("a: 1\nb: 2\nkeys: {x: y}\n", 3)):
        path.write_text(text)
        app = Opening()
        app.present = SimpleNamespace(active_bindings={})
        app._notify_faults()
        listed = [each for each in app.get_system_commands(app.present) if each.title == "Faults in the settings"]
        assert len(app.settings.problems) == count
        assert len(listed) == min(count, 1)
        many = [f"{count} faults in settings.yaml: ctrl+p faults lists them"] if count > 1 else []
        assert app.did == [(message, "error") for message in (many or app.settings.problems)]
        app.did.clear()


@pytest.mark.parametrize(
    ("no_colour", "kept", "colours", "theme", "faults"),
    [
        ("1", "gputui", "truecolor", "monochrome", 0), ("", "", "truecolor", "monochrome", 0),
        (None, "gputui-light", "standard", "gputui-light", 0), (None, "", "truecolor", "gputui", 0),
        (None, "", "256", "gputui", 0), (None, "", "standard", "high-contrast", 0),
        (None, "", None, "high-contrast", 0),
        (None, "no-such", "truecolor", "gputui", 1), (None, "no-such", "standard", "high-contrast", 1),
    ],
)  # fmt: skip
def test_the_theme_of_the_start_suits_the_settings_or_the_colours_of_the_terminal(
    monkeypatch: pytest.MonkeyPatch, no_colour: str | None, kept: str, colours: str | None, theme: str, faults: int
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_colour is not None:
        monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setattr(constants, "COLOR_SYSTEM", colours)
    path = places.settings_file()
    path.parent.mkdir(parents=True)
    path.write_text(f"theme: '{kept}'\n")
    app = GputuiApp()
    assert app.theme == theme
    known = ", ".join(each.name for each in THEMES)
    assert app.settings.problems == [f"{path}: there is no theme 'no-such'; known: {known}"] * faults


def test_a_theme_is_kept_when_the_user_has_chosen_it_also_the_one_of_the_start() -> None:
    app = GputuiApp()
    first, other = (theme for theme in THEMES if theme.name in (app.theme, "gputui-light"))
    if first.name != app.theme:
        first, other = other, first
    for theme, kept in ((first, ""), (other, other.name), (other, other.name), (first, first.name)):
        app._keep_theme(theme)
        assert app.settings.theme == kept


def test_a_picture_is_saved_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    clock = SimpleNamespace(strftime=lambda form: form.replace("%Y%m%d-%H%M%S", "now"))
    monkeypatch.setattr(application, "time", clock)
    monkeypatch.setattr(Opening, "export_screenshot", lambda app: "<svg/>")
    timers: list[Any] = []
    monkeypatch.setattr(Opening, "set_timer", lambda app, *given: timers.append(given))
    app, path = Opening(), tmp_path / "gputui-now.svg"
    app.picture()
    ((seconds, take),) = timers
    assert (seconds > 0, app.did) == (True, []), "the palette closes first"
    take()
    assert (path.read_text(), app.did) == ("<svg/>", [(str(path), "Saved")])
    path.unlink()
    path.mkdir()
    app.did.clear()
    app._picture()
    assert app.did == [(f"{path} cannot be written: Is a directory", "error")]


# ---- the terminal ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terminals", "more", "refusal"),
    [
        ("in out err", {}, ""), ("in out err", {"TERM": "xterm"}, ""),
        ("out err", {}, "the screen needs a terminal (ssh -t gives one); do it without one"),
        ("in err", {}, "the screen needs a terminal (ssh -t gives one); do it without one"),
        ("in out", {}, "the screen needs a terminal (ssh -t gives one); do it without one"),
        ("", {"TEXTUAL_DRIVER": show.WEB_DRIVER}, ""),
        ("in out err", {"TERM": "Dumb"}, "the screen cannot be drawn with TERM=Dumb; export TERM=xterm-256color, if "
         "this terminal supports it; do it without a screen"),
        ("in out err", {"TERM": "unknown"}, "the screen cannot be drawn with TERM=unknown; export TERM=xterm-256color, "
         "if this terminal supports it; do it without a screen"),
    ],
)  # fmt: skip
def test_a_screen_needs_a_terminal_that_can_draw_it(
    monkeypatch: pytest.MonkeyPatch, terminals: str, more: dict[str, str], refusal: str
) -> None:
    for name in ("TEXTUAL_DRIVER", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in more.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(show, "in_cell", lambda: False)
    streams = {name: SimpleNamespace(isatty=partial(terminals.split().__contains__, name)) for name in STREAMS}
    monkeypatch.setattr(show, "sys", SimpleNamespace(**{f"std{name}": each for name, each in streams.items()}))
    if refusal:
        with pytest.raises(Refused) as refused:
            show.need_a_terminal("do it")
        assert str(refused.value) == refusal
    else:
        show.need_a_terminal("do it")


def test_after_the_screens_what_goes_on_is_named_with_the_command_that_shows_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, proof = recorded.write(home, gpus=0, seconds=20), Proof(home / "proofs" / "x\x1b")
    made: list[Any] = []

    def make(*given: Any, **named: Any) -> Any:
        made.append((*given, named))
        return SimpleNamespace(
            run=lambda: None, going_on=lambda: [run], measuring=lambda: [proof], not_deleted="not deleted: disk",
            return_code=3,
        )  # fmt: skip

    monkeypatch.setattr(application, "GputuiApp", make)
    needed: list[Any] = []
    monkeypatch.setattr(show, "need_a_terminal", lambda *given: needed.append(given))
    monkeypatch.setattr(show, "gc", SimpleNamespace(disable=lambda: None, freeze=lambda: None))
    assert show.show(None, run, 4.0) == 3
    assert show.show() == 3
    assert needed == [(f"gputui logs {run.name} prints the log",), ()]
    assert made == [(None, {"watch": run, "replay_speed": 4.0}), (None, {"watch": None, "replay_speed": None})]
    out, err = capsys.readouterr()
    assert out.splitlines()[:2] == [
        "recorded goes on: gputui watch recorded shows it again",
        "the measurement x? goes on: gputui proof x? shows it",
    ]
    assert err.splitlines() == ["not deleted: disk"] * 2
