"""What a user is asked and told before something starts, goes on or is stopped: trainings and measurements."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.geometry import Region
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Button, OptionList

from tests.doors.engine import NotFree, Proof, presets, proof_start, tune_request
from tests.doors.engine import proof_request as request
from tests.doors.tui import INFO, Ask, ChoiceScreen, TuneScreen, starting
from tests.support.answering import Answering, act
from tests.support.recorded_proof import ENDED, as_read, write_proof, write_search
from tests.support.tiny import Tiny, wait_for

DONE = object()


async def answers(pilot: Pilot[None], dialog: Any, *pressed: str) -> Any:
    """The dialog's result after these keys; DONE if it is still open, which is then closed."""
    results: list[Any] = []
    pilot.app.push_screen(dialog, results.append)
    await wait_for(pilot, lambda: pilot.app.screen is dialog and dialog.is_mounted, 30)
    await pilot.pause()
    await pilot.press(*pressed)
    await pilot.pause()
    if results:
        return results[0]
    dialog.dismiss(None)
    await wait_for(pilot, lambda: pilot.app.screen is not dialog, 30)
    return DONE


async def test_a_question_is_answered_by_letters_the_arrows_and_enter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ask, "seen_after_seconds", 0.0)
    words = ("Save", "Save as", "Cancel")
    async with Tiny(Screen).run_test(size=(80, 24)) as pilot:
        for pressed, result in (
            (["s"], "Save"), (["S"], "Save"), (["c"], "Cancel"), (["enter"], "Cancel"), (["escape"], None),
            (["left", "enter"], "Save as"), (["left", "left", "enter"], "Save"), (["right", "enter"], "Cancel"),
            (["x"], DONE), (["5"], DONE), (["v"], DONE),
        ):  # fmt: skip
            assert await answers(pilot, Ask("Go [on]?", words), *pressed) == result, pressed
        dialog = Ask("Go [on]?\x1b", words)
        pilot.app.push_screen(dialog)
        shown = await wait_for(pilot, "Go [on]??", 30)
        assert "Save Save as Cancel" in " ".join(shown.split())
        assert [button.name for button in dialog.query(Button)] == list(words)
        assert dialog.focused is dialog.query(Button).last()


@pytest.mark.parametrize(
    ("row", "offset"),
    [
        (Region(4, 5, 60, 1), (22, 6)),  # below the row
        (Region(4, 18, 60, 1), (22, 19)),  # the last row with room below it: 5 values, and the edges, in 24 rows
        (Region(4, 19, 60, 1), (22, 14)),  # above it
        (Region(50, 5, 30, 1), (44, 6)),  # not over the right edge
    ],
)
async def test_the_values_of_an_option_are_listed_next_to_its_row(row: Region, offset: tuple[int, int]) -> None:
    info = INFO["compile.xla"]
    assert info.fixed_values == ("auto", "true", "false")
    async with Tiny(Screen).run_test(size=(80, 24)) as pilot:
        dialog = ChoiceScreen(info, "true", lambda: (row, 20))
        pilot.app.push_screen(dialog)
        await wait_for(pilot, "false", 30)
        at = dialog.query_one(OptionList)
        assert (at.offset, at.highlighted) == (offset, 1)
        for key, number in (("f", 2), ("a", 0), ("x", 0), ("a", 0)):
            await pilot.press(key)
            assert at.highlighted == number
        assert [" ".join(str(option.prompt).split()) for option in at.options] == ["auto default", "true", "false"]
        dialog.dismiss(None)
        info = INFO["precision.policy"]
        assert info.fixed_values == ("float32", "mixed_float16", "mixed_bfloat16")
        pilot.app.push_screen(dialog := ChoiceScreen(info, "no such value", lambda: (row, 20)))
        await wait_for(pilot, "mixed_float16", 30)
        at = dialog.query_one(OptionList)
        assert at.highlighted == 0, "the first, if the present value is none of them"
        for key, number in (("m", 1), ("m", 2), ("m", 1), ("F", 0), ("k", 2), ("j", 0)):
            await pilot.press(key)
            assert at.highlighted == number, key
        await pilot.click(at)
        await pilot.click(offset=(79, 23))
        await wait_for(pilot, lambda: pilot.app.screen is not dialog, 30)


def start(busy: str = "", launched: Any = ("run", "process"), measures: bool = False) -> starting.Start:
    def launch() -> Any:
        if isinstance(launched, Exception):
            raise launched
        return launched

    return starting.Start("fast", lambda: busy, launch, lambda: "place 2 in the queue", measures)


def shown(monkeypatch: pytest.MonkeyPatch, app: Answering, proof: Proof, data: Any = None) -> TuneScreen:
    """The screen of the proof, whose application answers."""
    monkeypatch.setattr(TuneScreen, "app", app, raising=False)
    monkeypatch.setattr(TuneScreen, "read_again", lambda _: None)
    screen = TuneScreen(proof)
    screen.data = data or proof.record
    return screen


# ---- starting -------------------------------------------------------------------------------------------


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


# ---- proofs ---------------------------------------------------------------------------------------------


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
    monkeypatch.setattr(tune_request, "resumed", lambda _proof, _kind, more: more)
    monkeypatch.setattr(proof_start, "start_again", lambda proof, more, anyway: resumed.append((proof, more, anyway)))
    monkeypatch.setattr(proof_start, "blocks", lambda *_: "")
    monkeypatch.setattr(Proof, "request", None)
    proof = write_search(home, state=state, seconds=seconds)
    data = as_read(ENDED | {"state": state, "seconds": seconds})
    assert data.search is not None
    data.search.limits = replace(data.search.limits, minutes=10.0)
    app = Answering(answer)
    act(shown(monkeypatch, app, proof, data), "resume")
    assert app.asked == ([("How many more minutes?", "2")] if minutes is not None else [])
    assert resumed == [(proof, minutes, True)]
    assert (app.told, app.engines) == (["the search goes on"], [None])
    resumed.clear()
    if minutes is not None:
        app.answers = [None]
        act(shown(monkeypatch, app, proof, data), "resume")
        assert (resumed, app.told) == ([], ["the search goes on"])


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
    monkeypatch.chdir(here)
    act(shown(monkeypatch, app, proof), "save_report")
    assert app.asked[0] == ("Save the report as Markdown to this path", f"proof-{proof.id}.md")
    assert app.asked[1:] == ([(f"{here / 'report.md'} exists.", ("Overwrite", "Cancel"))] if there else [])
    assert app.told == ([f"Saved: {tmp_path / written}"] if written else [])
    if written:
        assert "cache=memory" in (tmp_path / written).read_text()
    elif there:
        assert (here / "report.md").read_text() == "mine"


def test_a_report_that_cannot_be_written_is_said_with_its_path_and_its_reason(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof, app = write_proof(home), Answering("no/such.md")
    monkeypatch.chdir(tmp_path)
    act(shown(monkeypatch, app, proof), "save_report")
    assert app.told == [f"{tmp_path}/no/such.md cannot be written: No such file or directory (error)"]


def test_the_improved_preset_is_written_next_to_the_proof_and_opened(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof, app = write_proof(home), Answering()
    screen = shown(monkeypatch, app, proof)
    asyncio.run(screen.open_improved("train: {epochs: 3}\n"))
    assert app.opened == [("form", proof.path / "improved.yaml")]
    assert (proof.path / "improved.yaml").read_text() == "train: {epochs: 3}\n"
    (proof.path / "improved.yaml").unlink()
    (proof.path / "improved.yaml").mkdir()
    app.opened.clear()
    asyncio.run(screen.open_improved(""))
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
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, source: bool, opened: str, told: list[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("extends: quickstart\n")
    ended: dict[str, Any] = {"changes_kept": {}, "gain_total": None, "comparisons": []} if state == "stopped" else {}
    proof = write_search(home, state=state, **ended)
    (proof.path / "request.json").write_text(request.of_preset("tune", str(file), ()).to_json())
    if not source:
        file.unlink()
    app = Answering()
    act(shown(monkeypatch, app, proof), "apply")
    assert app.told == told
    if source:
        kept = {"input.batch_size": 256, "precision.policy": "mixed_bfloat16", "input.cache": "memory"}
        assert app.opened == [("apply", (file, kept, opened))]
    else:
        assert app.opened == [("form", proof.path / "improved.yaml")]
        assert presets.resolve(str(proof.path / "improved.yaml")).options.input.batch_size == 256
