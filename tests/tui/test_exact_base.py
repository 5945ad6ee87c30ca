"""Exact cases of what all screens rest on: glyphs, colours, errors, kinds of output, taking back, settings."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.presets import PresetError
from gputui.engine.presets.preset import Problem
from gputui.engine.runs import RunError
from gputui.tui.base import errors, terminal, warm_engine
from gputui.tui.base.glyphs import PLAIN, RICH, glyphs_of, is_poor, suited
from gputui.tui.base.settings import declared, shown, takes, wrong
from gputui.tui.base.themes import CALM, LIGHT, own_colours, painted_colour
from gputui.tui.base.undo import Acts
from gputui.tui.base.unexpected_errors import LOG_BYTES, Faults
from textual.theme import Theme

Printed = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("environment", "rich"),
    [({}, True), ({"GPUTUI_ASCII": "1"}, False), ({"GPUTUI_ASCII": "0"}, True), ({"GPUTUI_ASCII": ""}, True),
     ({"GPUTUI_ASCII": "true"}, False),
     ({"TERM": "linux"}, False), ({"TERM": "linux-16color"}, False), ({"TERM": "xterm-linux"}, True),
     ({"LANG": "de_DE.UTF-8"}, True), ({"LANG": "de_DE.ISO-8859-1"}, False), ({"LANG": "C"}, True),
     ({"LC_CTYPE": "POSIX"}, True), ({"LC_ALL": "C"}, False), ({"LC_ALL": "C.utf8", "LANG": "de_DE"}, True),
     ({"LC_CTYPE": "de_DE", "LANG": "C.UTF-8"}, False), ({"LC_ALL": "C", "LC_CTYPE": "C.UTF-8"}, False)],
)  # fmt: skip
def test_pictures_have_the_characters_that_terminal_and_locale_can_show(
    environment: Mapping[str, str], rich: bool
) -> None:
    assert suited(environment) is (RICH if rich else PLAIN)


def test_plain_characters_are_ascii_and_the_glyphs_are_those_of_the_application() -> None:
    texts = [text for name in PLAIN.__dataclass_fields__ if isinstance(text := getattr(PLAIN, name), str)]
    assert all(text.isascii() for text in (*texts, *PLAIN.points, *PLAIN.legend))
    assert glyphs_of(SimpleNamespace(glyphs=PLAIN)) is PLAIN
    signs = {
        "page_back": "‹<", "page_on": "›>", "up": "▲^", "down": "▼v", "hint": ("→", "->"), "to": ("→", "->"),
        "folded": ("▸", "[+]"), "unfolded": ("▾", "[-]"), "whisker_left": "├[", "whisker_right": "┤]",
        "here": ("▌▐", "[]"), "ok": ("✓", "ok"), "failed": "✗X", "stopped": "■=", "running": "▶>",
        "corners": ("╭╮╰╯", "++++"),
    }  # fmt: skip
    assert {name: (getattr(RICH, name), getattr(PLAIN, name)) for name in signs} == {
        name: tuple(both) for name, both in signs.items()
    }
    assert [is_poor({"TERM": name}) for name in ("dumb", "vt100-am", "screen", "")] == [True, True, False, False]


@pytest.mark.parametrize(
    ("environment", "cell"),
    [({"TERM": "xterm-color", "GIT_PAGER": "cat"}, True), ({"TERM": "xterm-color"}, False),
     ({"TERM": "xterm", "GIT_PAGER": "cat"}, False), ({}, False)],
)  # fmt: skip
def test_a_cell_of_a_notebook_takes_no_keys_and_draws_nothing_again(
    environment: Mapping[str, str], cell: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TERM", "GIT_PAGER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    streams = dict.fromkeys(("stdin", "stdout"), True)
    for name in streams:
        monkeypatch.setattr(getattr(sys, name), "isatty", lambda name=name: streams[name])
    assert terminal.in_cell() is cell
    assert (terminal.takes_keys(), terminal.draws_again(False)) == (not cell, not cell)
    assert not terminal.draws_again(True)
    streams["stdin"] = False
    assert (terminal.takes_keys(), terminal.draws_again(False)) == (False, not cell)
    streams |= {"stdin": True, "stdout": False}
    assert (terminal.takes_keys(), terminal.draws_again(False)) == (False, False)


# ---- errors ----------------------------------------------------------------------------------------------


def test_the_exit_code_of_each_outcome() -> None:
    outcomes = ("ok", "oom", "stopped", "crashed", "error", None, "")
    assert [errors.exit_code(outcome) for outcome in outcomes] == [0, 3, 130, 1, 1, 1, 1]


def disk(number: int, name: str | None = None) -> OSError:
    return OSError(number, "told by the system", name) if name else OSError(number, "told by the system")


@pytest.mark.parametrize(
    ("fault", "code", "lines"),
    [(errors.Refused("no\ndo that"), 2, ["no", "do that"]), (RunError("no run"), 2, ["no run"]),
     (disk(errno.EACCES, "/a"), 2, ["told by the system: /a"]), (disk(errno.ECHILD), 2, ["told by the system"]),
     (disk(errno.ENOSPC, "/a"), 2,
      ["told by the system: /a", "GPUTUI_HOME=/other/folder puts the runs on another disk"]),
     (disk(errno.ENOSPC), 2, ["told by the system: the file that was being written"]),
     (KeyError("x"), 1, ["unexpected KeyError: 'x'", "please report it, with the command you gave"])],
)  # fmt: skip
def test_a_failed_command_says_in_lines_what_to_do(
    fault: Exception, code: int, lines: list[str], capsys: Printed
) -> None:
    assert errors.report(fault) == code
    printed = capsys.readouterr()
    assert (printed.out, printed.err.splitlines()) == ("", lines)


def test_a_current_folder_that_was_deleted_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert errors.guarded(lambda: errors.report(disk(errno.ENOENT))) == 2
    assert capsys.readouterr().err == "told by the system: the current folder has been deleted; change to another one\n"


@pytest.mark.parametrize(("count", "more"), [(5, []), (6, ["and 1 more; gputui presets check FILE shows all"])])
def test_of_the_problems_of_a_preset_five_are_named(count: int, more: list[str], capsys: Printed) -> None:
    assert errors.report(PresetError([Problem("f", 1, "", str(number)) for number in range(count)])) == 2
    assert capsys.readouterr().err.splitlines() == [*(f"f:1: {number}" for number in range(5)), *more]


class Unwritable:
    """Standard output that cannot be written at the end."""

    def __init__(self, fault: OSError | None) -> None:
        self.fault = fault

    def flush(self) -> None:
        if self.fault is not None:
            raise errors.OutputFault(self.fault)


@pytest.mark.parametrize(
    ("fault", "code", "ends", "said"),
    [(None, 0, 0, ""), (None, 3, 3, ""),
     (disk(errno.ENOSPC), 0, 74, "standard output cannot be written (told by the system)"),
     (disk(errno.ENOSPC), 2, 2, "standard output cannot be written (told by the system)"),
     (BrokenPipeError(errno.EPIPE, "x"), 0, 0, ""), (BrokenPipeError(errno.EPIPE, "x"), 1, 1, "")],
)  # fmt: skip
def test_an_output_that_cannot_be_written_hides_no_failed_command(
    fault: OSError | None, code: int, ends: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    discarded: list[bool] = []
    monkeypatch.setattr(errors, "discard_output", lambda: discarded.append(True))
    monkeypatch.setattr(sys, "stdout", Unwritable(fault))
    assert errors.guarded(lambda: code) == ends
    assert (discarded, capsys.readouterr().err.strip()) == ([True] * (fault is not None), said)


def test_messages_that_cannot_be_written_do_not_replace_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open("/dev/full", "w") as full, open(tmp_path / "other", "w") as other:
        monkeypatch.setattr(sys, "stderr", full)
        assert errors.guarded(lambda: errors.report(errors.Refused("no"))) == 2
        assert os.path.samestat(os.fstat(full.fileno()), os.stat(os.devnull))  # what is kept goes nowhere at the end
        monkeypatch.setattr(sys, "stderr", other)
        assert errors.guarded(lambda: errors.report(errors.Refused("no"))) == 2
    assert (tmp_path / "other").read_text() == "no\n"


def test_a_command_that_is_interrupted_or_refused_has_its_exit_code(capsys: Printed) -> None:
    def ends(fault: BaseException) -> int:
        def command() -> int:
            raise fault

        return errors.guarded(command)

    assert [ends(fault) for fault in (KeyboardInterrupt(), errors.Refused("no"), KeyError("x"))] == [130, 2, 1]
    assert capsys.readouterr().err.splitlines()[:2] == ["no", "unexpected KeyError: 'x'"]


def test_texts_of_others_steer_no_terminal_and_long_lines_lose_their_middle(capsys: Printed) -> None:
    assert errors.clean("a\x1b[31m\tb\nc\u202e") == "a?[31m b\nc?"
    errors.complain("one\x07\n" + "x" * 30 + "y" * 30, 20)
    first, second = capsys.readouterr().err.splitlines()
    assert (first, len(second)) == ("one?", 20)
    assert second.startswith("xxx")
    assert second.endswith("yyy")
    assert errors.error_text({"message": "m", "hint": "h"}) == "m\nh"
    assert errors.error_text({"message": "m", "hint": ""}) == "m"


def test_the_log_of_unexpected_errors_is_begun_again_once_it_is_long(home: Path) -> None:
    faults = Faults(None, lambda screen: None)  # type: ignore[arg-type]
    path = faults.log(ValueError("first"))
    assert path == home / "tui.log"
    faults.log(ValueError("second"))
    assert [line for line in path.read_text().splitlines() if "Error" in line] == [
        "ValueError: first", "ValueError: second",
    ]  # fmt: skip
    path.write_text("x" * LOG_BYTES)
    faults.log(ValueError("third"))
    assert path.read_text().startswith("xxx")
    faults.log(ValueError("fourth"))
    assert "third" not in path.read_text()
    assert path.read_text().endswith("ValueError: fourth\n\n")


# ---- taking back -------------------------------------------------------------------------------------------


def test_an_act_leaves_the_list_if_all_of_it_could_be_taken_back() -> None:
    acts, reasons = Acts("nothing"), ["one is in use"]
    acts.add("deleted a", lambda: None, key="a")
    acts.add("deleted b", lambda: reasons, "b is back")
    second, first = acts.newest_first
    assert (first.message, second.message, first.key) == ("taken back: deleted a", "b is back", "a")
    assert acts.take_back(second) == ["one is in use"]
    assert acts.newest_first == [second, first]
    acts.postpone(second)
    assert acts.newest_first == [first, second]
    reasons.clear()
    assert list(acts.take_back(second)) == []
    assert list(acts.take_back(second)) == [], "it has gone, and can be asked again"
    acts.postpone(second)
    assert acts.newest_first == [first]


# ---- settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "right", "not_taken", "which"),
    [("runs.sort", ["", "x"], [5, None, True], "text"), ("log.wrap", [True, False], [1, "yes", None], "true or false"),
     ("charts.smoothing", [0.0, 0.99], [-0.01, 0.991, 0, "0"], "a number from 0 to 0.99"),
     ("charts.x_axis", ["auto", "samples"], ["", "miles"], "one of auto, step, epoch, time, samples"),
     ("runs.columns", [(), ("a",)], [("a", 1), ["a"], "a"], "a list of names"),
     ("keys", [{}, {"a": "b"}], [{"a": 1}, {1: "a"}, ()], "a mapping of verbs to keys")],
)  # fmt: skip
def test_the_values_that_a_setting_takes(key: str, right: list[Any], not_taken: list[Any], which: str) -> None:
    field = dict(declared())[key]
    assert [wrong(field, value) for value in right] == [""] * len(right)
    assert [wrong(field, value) for value in not_taken] == [
        f"must be {which}, not {shown(value)}" for value in not_taken
    ]
    assert takes(field) == which


def test_an_address_for_notices_begins_as_one() -> None:
    field = dict(declared())["notify.url"]
    assert [wrong(field, url) == "" for url in ("", "https://a", "http://a", "$URL", "ftp://a", "a")] == [
        True, True, True, True, False, False,
    ]  # fmt: skip
    assert (shown(True), shown(False), shown(("a", "b")), shown("a"), shown(0.5)) == (
        "true", "false", "[a, b]", "'a'", "0.5",
    )  # fmt: skip


# ---- colours -------------------------------------------------------------------------------------------------


def test_themes_that_do_not_name_our_colours_get_them() -> None:
    made = own_colours(
        Theme("t", primary="#102030", warning="#804000", error="#c00000", foreground="#ffffff", dark=True)
    )
    assert {name: made[name] for name in ("moderate", "heavy", "grid", "picked", "here", "curve5")} == {
        "moderate": "#804000", "heavy": "#A02000", "grid": "#FFFFFF23", "picked": "#10203023", "here": "#1020303F",
        "curve5": "#b795ee",
    }  # fmt: skip
    bare = own_colours(Theme("t", primary="#102030", dark=False))
    assert {name: bare[name] for name in ("moderate", "heavy", "grid", "curve5")} == {
        "moderate": "#102030", "heavy": "#102030", "grid": "#20202023", "curve5": "#6d3fb0",
    }  # fmt: skip
    assert own_colours(Theme("t", primary="#102030", dark=True))["grid"] == "#E0E0E023"


def test_the_colour_of_each_style_of_painted_rows() -> None:
    def app(theme: Theme, **variables: str) -> Any:
        return SimpleNamespace(current_theme=theme, theme_variables=variables)

    muted = app(CALM, **{"foreground-muted": "#939ca5", "curve5": "#b795ee", "curve1": "#000000"})
    styles = ("good", "warn", "bad", "curve1", "curve4", "curve5", "curve6", "label", "track", "value", "")
    assert [painted_colour(muted, style) for style in styles] == [
        CALM.success, CALM.warning, CALM.error, CALM.primary, CALM.error, "#b795ee", "", "#939CA5", "#939CA5", "", "",
    ]  # fmt: skip
    clear = app(LIGHT, **{"foreground-muted": "rgba(1,2,3,0.5)"})
    assert [painted_colour(clear, style) for style in ("label", "good")] == ["dim", LIGHT.success]
    assert painted_colour(app(Theme("t", primary="#102030")), "good") == ""


# ---- the warm engine -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "starts"),
    [({}, True), ({"is_headless": True}, False), ({"warm": "one"}, False), ({"busy": True}, False),
     ({"off": "0"}, False), ({"off": "1"}, True), ({"level": "error"}, False), ({"level": "warning"}, True),
     ({"is_running": False}, False)],
)  # fmt: skip
def test_an_engine_is_warmed_up_if_nothing_speaks_against_it(
    changes: dict[str, Any], starts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    fields = {
        "is_headless": False,
        "warm": None,
        "busy": False,
        "off": "",
        "level": "note",
        "is_running": True,
    } | changes
    app: Any = SimpleNamespace(training_python="/py", **fields)
    monkeypatch.setenv("GPUTUI_WARM", fields["off"])
    monkeypatch.setattr("gputui.engine.checks.of_packages", lambda python: [SimpleNamespace(level=app.level)])
    monkeypatch.setattr("gputui.engine.interpreter.interpreter.chosen", lambda python: f"chosen {python}")

    class Warm:
        def __init__(self, python: str) -> None:
            made.append(python)

        def close(self) -> None:
            made.append("closed")

    monkeypatch.setattr("gputui.engine.process.launch.Warm", Warm)
    warm_engine.start(app, lambda: app.busy)
    assert made == ["chosen /py"] * starts
    if starts:
        warm_engine.close(app)
        warm_engine.close(app)
        assert (made, app.warm) == (["chosen /py", "closed"], None)
