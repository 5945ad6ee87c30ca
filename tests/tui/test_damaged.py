"""Runs and measurements in every state, and damaged ones: no screen ends for them, and none hides another."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast, get_args

import pytest
from textual.pilot import Pilot

from tests.doors.engine import Entry, Process, Proof, Run, all_runs, entries, entry_changes, events, folder
from tests.doors.engine import identity_Place as Place
from tests.doors.engine import proof_request_Request as Request
from tests.doors.engine import run_WAITING as WAITING
from tests.doors.tui import (
    ACTING,
    VERBS,
    AppScreen,
    CompareScreen,
    DiagnosisScreen,
    LiveScreen,
    ProofScreen,
    RunsScreen,
    ScalingScreen,
    SweepScreen,
    TuneScreen,
    runs_actions,
    shown,
    working,
)
from tests.support import queued, recorded, recorded_proof, swept
from tests.support.damage import FILES, kinds
from tests.support.tiny import Tiny, text_of, tiny, wait_for

SHOWN = 6  # of the damaged runs, in the screens that show one


@pytest.fixture
def damaged(home: Path) -> list[Run]:
    """One run each for half of the kinds of damage to each file, its other files whole; beside two good ones."""
    good = recorded.write(home, name="20260921-100000-good", gpus=1, seconds=20)
    recorded.write(home, name="20260921-110000-fine", gpus=0, seconds=20)
    made = []
    every = [(kind, name) for kind in kinds() for name in FILES]
    for number, (kind, name) in enumerate(random.Random(6).sample(every, len(every) // 2)):
        run = Run(home / "runs" / f"20260920-100000-bad-{number}")
        shutil.copytree(good.path, run.path)
        kind.damage(run.file(name))
        made.append(run)
    return made


async def settled(pilot: Pilot[None]) -> None:
    """Until what is read of the run has been read and shown."""
    for _ in range(4):
        await pilot.pause(0.1)
    text_of(pilot.app)


async def test_no_screen_ends_for_damaged_runs_and_none_hides_another(damaged: list[Run]) -> None:
    count = len(all_runs())
    assert count > len(damaged) // 2
    async with Tiny(RunsScreen).run_test(size=(120, 40), notifications=True) as pilot:
        await in_the_table(pilot, count)
        for run in random.Random(7).sample([run for run in damaged if run.path.is_dir()], SHOWN):
            await by_itself(pilot, run)
        await compared(pilot, damaged)
        assert pilot.app.is_running


async def in_the_table(pilot: Pilot[None], count: int) -> None:
    await wait_for(pilot, f"{count} of {count} runs")
    screen = pilot.app.screen
    assert isinstance(screen, RunsScreen)
    assert {"20260921-100000-good", "20260921-110000-fine"} <= set(screen.shown)
    for column in ("state", "samples/s", "loss", "memory", "when", "description", "run"):
        screen.sort_by(column)
        await pilot.pause()
        text_of(pilot.app)
    await pilot.press("end", "home", "slash", *"good", "enter")
    await wait_for(pilot, f"of {count} runs")


async def by_itself(pilot: Pilot[None], run: Run) -> None:
    live = LiveScreen(run)
    await tiny(pilot).push_screen(live)
    await settled(pilot)
    await tiny(pilot).push_screen(DiagnosisScreen(live))
    await settled(pilot)
    await pilot.press("escape", "escape")


async def compared(pilot: Pilot[None], damaged: list[Run]) -> None:
    listed = [run for run in all_runs() if run in damaged]
    runs = random.Random(8).sample(listed, 40)
    good = [run for run in all_runs() if run not in damaged]
    for start in range(0, len(runs), 20):
        screen = CompareScreen([*good, *runs[start : start + 20]])
        await tiny(pilot).push_screen(screen)
        await wait_for(pilot, lambda screen=screen: screen.comparison is not None)  # type: ignore[misc]
        text_of(pilot.app)
        await pilot.press("escape")


# ---- every state of a run ---------------------------------------------------------------------------


ENDS = get_args(events.Outcome)
BEGINNINGS = ("importing", "building", "compiling", "training")
GOES_ON = {"running", "starting", "stopping"}


def ended_without_figures(home: Path, outcome: str) -> Run:
    """A run of which the engine knows nothing but how it ended: each figure of its result is null."""
    made = queued.waiting(f"bare-{outcome}")
    made.file("result.json").write_text(json.dumps(asdict(events.Summary(outcome=cast(Any, outcome)))))
    return made


def in_every_state(home: Path, elsewhere: dict[str, Any]) -> dict[str, Run]:
    """One run in each state that a run can have, by a name of the state."""
    mine, made = os.getpid(), dict[str, Run]()
    for outcome in ("ok", "oom", "stopped"):
        made[f"ended {outcome}"] = recorded.write(home, name=f"full-{outcome}", gpus=1, seconds=20, outcome=outcome)
    for outcome in ENDS:
        made[f"ended {outcome}, no figures"] = ended_without_figures(home, outcome)
    made["crashed without a word"] = recorded.write(home, name="gone", gpus=0, seconds=15, outcome=None)
    made["running"] = recorded.write(home, name="on", gpus=1, seconds=20, outcome=None, engine_pid=mine)
    made["no telemetry"] = recorded.write(home, name="mute", gpus=0, seconds=20, outcome=None, engine_pid=mine)
    made["no telemetry"].file("telemetry.jsonl").unlink()
    made["telemetry alone"] = recorded.write(home, name="deaf", gpus=1, seconds=20, outcome=None, engine_pid=mine)
    made["telemetry alone"].file("events.jsonl").unlink()
    for phase in BEGINNINGS:
        run = made[f"no step, {phase}"] = recorded.write(
            home, name=f"at-{phase}", gpus=0, seconds=12, outcome=None, engine_pid=mine
        )
        lines = run.file("events.jsonl").read_text().splitlines(keepends=True)
        end = next(at for at, line in enumerate(lines) if f'"phase":"{phase}"' in line)
        run.file("events.jsonl").write_text("".join(lines[: end + 1]))
        run.file("telemetry.jsonl").unlink()
    made["starting"] = queued.waiting("new")
    made["another machine's"] = recorded.write(home, name="far", gpus=1, seconds=20, outcome=None)
    status = json.loads(made["another machine's"].file("status.json").read_text())
    made["another machine's"].file("status.json").write_text(json.dumps(status | elsewhere))
    for name in ("next", "second", "held", "taken out", "put back"):
        made[f"queue: {name}"] = queued.waiting(name.replace(" ", "-"), visible="none")
        queued.add(made[f"queue: {name}"], after=made["queue: next"] if name == "second" else None)
    made["queue: begun before"] = recorded.write(home, name="again", gpus=0, seconds=20, outcome="stopped")
    made["queue: begun before"].file("options.json").write_text('{"device": {"visible": "none"}}')
    queued.add(made["queue: begun before"])
    entry_changes.hold(made["queue: held"].id)
    entry_changes.remove(made["queue: taken out"].id)
    back = entry_changes.remove(made["queue: put back"].id)
    assert back is not None
    back.put_back()
    return made


def keys_shown(pilot: Pilot[None]) -> str:
    return text_of(pilot.app).rstrip("\n").split("\n")[-1]


IN_SIZES = {"alone": (80, 24), "listed": (120, 40), "measured": (80, 24), "compared": (120, 40)}


@pytest.mark.slow
@pytest.mark.parametrize("pressed", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["shown", "pressed"])
@pytest.mark.parametrize(
    "shown_in",
    ["alone", "measured", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("listed", "compared"))],
)
async def test_every_key_that_the_help_names_has_an_effect_or_says_why_not(
    shown_in: str, pressed: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every state of a run or a measurement, damaged ones too; by day only the last line is looked at."""
    queued.no_runner(monkeypatch)
    asked: list[str] = []
    for name in ("process.launch.start", "process.resuming.resume", "proof.proof_start.start_again"):
        monkeypatch.setattr(f"gputui.engine.{name}", lambda *_, name=name, **__: asked.append(name))
    monkeypatch.setattr(runs_actions, "request_stop", lambda started, _: asked.append(started))
    tried = set[tuple[object, ...]]()
    async with Tiny(RunsScreen).run_test(size=IN_SIZES[shown_in]) as pilot:
        monkeypatch.setattr(pilot.app, "notify", lambda message, **_: asked.append(message))
        async for name, screen in SHOWN_IN[shown_in](pilot, home):
            footer = keys_shown(pilot)
            assert [key for key in keys_without_effect(screen) if f" {shown(key)} " in f" {footer}"] == [], footer
            state = type(screen), frozenset(keys_of_actions(screen)), "queued" in name
            if state not in tried:
                tried.add(state)
                if pressed:
                    await keys_pressed(pilot, screen, asked, name)
    assert tried


async def alone(pilot: Pilot[None], home: Path) -> AsyncIterator[tuple[str, AppScreen]]:
    for name, run in in_every_state(home, {"host": "elsewhere", "boot_id": "another"}).items():
        live = LiveScreen(run)
        await tiny(pilot).push_screen(live)
        await wait_for(pilot, lambda live=live: not live.picture.reading)  # type: ignore[misc]
        await pilot.pause()
        yield name, live
        await tiny(pilot).pop_screen()


async def listed(pilot: Pilot[None], home: Path) -> AsyncIterator[tuple[str, AppScreen]]:
    made, table = in_every_state(home, {"host": "elsewhere", "boot_id": "another"}), RunsScreen()
    await tiny(pilot).push_screen(table)
    await wait_for(pilot, f"{len(made)} of {len(made)} runs")
    for name, run in made.items():
        await in_the_list(pilot, table, run)
        yield name, table


async def measured(pilot: Pilot[None], home: Path) -> AsyncIterator[tuple[str, AppScreen]]:
    for name, proof in measurements(home).items():
        screen = SCREENS[name.split(" ")[0]](proof)
        await tiny(pilot).push_screen(screen)
        await wait_for(pilot, lambda screen=screen: screen.latest is not None)  # type: ignore[misc]
        await pilot.pause()
        yield name, screen
        await tiny(pilot).pop_screen()


async def compared_with_another(pilot: Pilot[None], home: Path) -> AsyncIterator[tuple[str, AppScreen]]:
    made = in_every_state(home, {"host": "elsewhere", "boot_id": "another"})
    for name, run in made.items():
        screen = CompareScreen([made["ended oom"], run])
        await tiny(pilot).push_screen(screen)
        await wait_for(pilot, lambda screen=screen: screen.comparison is not None)  # type: ignore[misc]
        await pilot.pause()
        yield name, screen
        await tiny(pilot).pop_screen()


SHOWN_IN = {"alone": alone, "listed": listed, "measured": measured, "compared": compared_with_another}


def keys_of_actions(screen: AppScreen) -> set[str]:
    """The first key of each action of the screen that the help names, as Textual calls them."""
    named = {keys.partition(", ")[0] for group in ("Actions", ACTING) for keys, _ in working(screen).get(group, ())}
    return {key for key in screen.active_bindings if shown(key) in named}


def keys_without_effect(screen: AppScreen) -> set[str]:
    """The first key of each further action of the screen, which has no effect now."""
    bindings = [binding for listed in screen._bindings.key_to_bindings.values() for binding in listed]
    verbs = [VERBS[binding.id] for binding in bindings if binding.id in VERBS]
    bound = {verb.keys.split(",")[0] for verb in verbs if verb.group == "Actions"}
    return bound - set(screen.active_bindings)


async def keys_pressed(pilot: Pilot[None], screen: AppScreen, asked: list[str], name: str) -> None:
    at = screen.current.run.id if isinstance(screen, RunsScreen) and screen.current else ""
    for key in sorted(keys_of_actions(screen)):
        if key in keys_of_actions(screen):
            await has_an_effect(pilot, screen, key, asked, name)
            await back_to(pilot, screen, at)
    ends_later = name.endswith(("running", "going on", "queued"))
    for key in sorted(keys_without_effect(screen)) if not isinstance(screen, LiveScreen) else ():
        said = len(asked)
        await pilot.press(key)
        why: list[str] = []
        for _ in range(100):
            if why := [text for text in map(str, asked[said:]) if text.startswith(f"{shown(key)} (")]:
                break
            await pilot.pause(0.03)
        assert len(why) == 1, f"{shown(key)} of {name}: {asked[said:]}"
        assert not (ends_later and "has ended" in why[0]), f"{name}: {why}"


async def back_to(pilot: Pilot[None], screen: AppScreen, at: str) -> None:
    while pilot.app.screen is not screen:
        await tiny(pilot).pop_screen()
    if isinstance(screen, LiveScreen):
        screen.zoom = ""
        screen.show_now()
    if isinstance(screen, RunsScreen):
        if screen.focused is not screen.table:
            screen.action_back()
        screen.marked = {}
        screen.rearrange(at)
    await pilot.pause()


async def has_an_effect(pilot: Pilot[None], screen: AppScreen, key: str, asked: list[str], name: str) -> None:
    def seen() -> tuple[Any, ...]:
        picture = [line for line in text_of(pilot.app).split("\n") if "elapsed" not in line]
        return pilot.app.screen, pilot.app.focused, picture, len(asked), len(tiny(pilot).opened)

    before = seen()
    await pilot.press(key)
    for _ in range(100):
        await pilot.pause(0.03)
        if seen() != before:
            break
    assert seen() != before, f"{shown(key)} of {name}"


async def in_the_list(pilot: Pilot[None], table: RunsScreen, run: Run) -> None:
    table.rearrange(run.id)
    await wait_for(pilot, lambda: table.current is not None and table.current.run == run)
    assert table.current is not None
    state, kept = run.state, table.current.has_checkpoint
    await wait_for(pilot, lambda: not untrue(keys_shown(pilot), state, kept))


def untrue(keys: str, state: str, has_checkpoint: bool) -> list[str]:
    """The keys that the last line of a screen shows although they have no effect on a run in this state, or misses."""
    meant = {
        "Take out": state == WAITING,
        "x Stop": state in GOES_ON,
        "R Resume": has_checkpoint and state not in {*GOES_ON, WAITING, "ok"},
        "r Run again": state not in {*GOES_ON, WAITING},
    }
    return [key for key, has_effect in meant.items() if key in keys and not has_effect] + [
        key for key in ("Take out",) if meant[key] and key not in keys
    ]


# ---- every state of a measurement -------------------------------------------------------------------

SCREENS = {"ab": ProofScreen, "loop": ProofScreen, "tune": TuneScreen, "sweep": SweepScreen, "scaling": ScalingScreen}


def measurements(home: Path) -> dict[str, Proof]:
    """A measurement of each kind in each state: with nothing but its request, and with results."""
    made = dict[str, Proof]()
    for kind in SCREENS:
        request = swept.request_of(["learning_rate=1e-3..1e-2"]) if kind == "sweep" else Request(
            kind=kind, preset_name="small", preset="schema_version: 1\n", folder="/", seed=1
        )  # fmt: skip
        for state in ("running", "done", "stopped", "failed", "crashed", "queued", "taken out", "damaged"):
            proof = made[f"{kind} {state}"] = folder.create(request)
            file = proof.path / "proof.json"
            written = json.loads(file.read_text())
            old: dict[str, Any] = {
                "started_t": 1.0,
                "state": "running" if state in ("crashed", "queued", "taken out", "damaged") else state,
            }
            error = {"error": "it has failed"} if state == "failed" else {}
            alive = {**Place.here().as_fields(), **Process.of(os.getpid()).as_fields()}
            file.write_text(json.dumps(written | (alive if state == "running" else old | error)))
            if state == "damaged":
                file.write_text('{"state": "done", "comparisons": 7, "sweep": [], "search": "x"')
            if state in ("queued", "taken out"):
                entries.add_entry(Entry(proof.id, 1, kind="proof", group=kind, what=kind, needs="none"))
            if state == "taken out":
                entry_changes.remove(proof.id)
    made["loop results"] = recorded_proof.write_proof(home)
    made["loop going on"] = recorded_proof.write_proof(home, "going", **recorded_proof.running())
    made["tune results"] = recorded_proof.write_search(home)
    made["tune going on"] = recorded_proof.write_search(home, "searching", **recorded_proof.searching())
    return made
