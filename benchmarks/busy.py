"""Measures how keys are handled on a busy machine: no key may be an error, act on the wrong screen or be lost silently.

    python benchmarks/busy.py [--starts 200] [--bursts 300] [--burners 16] [--seed 1] [--two-imports-at-once]

A start is a new process that shows the form. Its home has a latest run with eight GPUs. Random keys arrive within half
a second of the first paint, while first imports, threads and mounts are delayed at random. A burst is a text that is
typed into one of the places that take text, in pieces that are divided at random. Each start and each burst is printed
with its seed, with which it can be repeated. The exit code is 1 if one of them was wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import _bootstrap
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

SLEEPS, PART = (0.02, 0.3), 0.4  # before so many of the first imports
LONGEST_SECONDS, MORE_SECONDS = 90.0, 30.0  # of one start: with nothing else, and for each burner
HARMLESS = ("right", "lost and said")
F3, F4, F5, F6, TYPED = "\x1bOR", "\x1bOS", "\x1b[15~", "\x1b[17~", "/train"
STARTS = (
    (TYPED,), (F3,), (F4,), (F5,), (F6,), ("?",), ("o",), (F3, "l/step"), (F4, "/cnn"), ("\x10", "doctor"), ("64",),
    (F3, F4, F3), ("T",), (F4, "dd"), (F3, "e", "64"), ("\x10", "scaling", "\r"), (F6, F3), ("e", "some words"),
)  # fmt: skip


def slow_down(chance: random.Random, one_import: bool) -> None:
    """Delay some of the first imports, threads and mounts of this process, from now on, by times drawn from `chance`.

    If `one_import` is False, several threads may import at once, as Python does without gputui's lock.
    """
    from gputui.tui.base import base_app
    from textual.message_pump import MessagePump

    importlib: Any = _bootstrap
    unlocked, submit, prepare = importlib._find_and_load_unlocked, ThreadPoolExecutor.submit, MessagePump._pre_process

    def find(name: str, import_: Any) -> Any:
        if name.startswith(("gputui", "pydantic", "yaml")) and chance.random() < PART:
            time.sleep(chance.uniform(*SLEEPS))
        return unlocked(name, import_)

    def later(pool: Any, work: Callable[..., Any], *given: Any, **named: Any) -> Any:
        seconds = chance.choice((0, 0, chance.uniform(*SLEEPS)))

        def act() -> Any:
            time.sleep(seconds)
            return work(*given, **named)

        return submit(pool, act)

    async def mount(pump: MessagePump) -> bool:
        if chance.random() < 0.02:
            await asyncio.sleep(chance.uniform(*SLEEPS))
        return await prepare(pump)

    importlib._find_and_load_unlocked = find
    ThreadPoolExecutor.submit = later  # type: ignore[assignment, method-assign]
    MessagePump._pre_process = mount  # type: ignore[assignment, method-assign]
    if not one_import:
        base_app.import_one_at_a_time = lambda: None  # type: ignore[attr-defined]


@contextmanager
def nothing_done() -> Iterator[list[str]]:
    """A context in which no run is started, stopped or deleted. The list gets `start`, `stop` or `delete` for each
    attempt.

    Each attempt raises OSError.
    """
    from gputui.engine import runs
    from gputui.engine.process import launch
    from gputui.engine.runs import trash

    done: list[str] = []

    def noted(what: str) -> Any:
        def act(*_given: Any, **_named: Any) -> None:
            done.append(what)
            raise OSError(what)

        return act

    launch.start, runs.request_stop, trash.Trash.put = noted("start"), noted("stop"), noted("delete")  # type: ignore
    yield done


async def one_start(seed: int, one_import: bool) -> dict[str, Any]:
    """Start the application, and type random keys after at most half a second. Return the seed, the keys, the messages
    that were shown (`said`) and the class of the screen at the end.

    `one_import` is that of `slow_down`.
    """
    from gputui.tui.app import GputuiApp

    from tests.support.bursts import burst

    chance = random.Random(seed)
    keys = chance.choice(STARTS)
    app = GputuiApp()
    slow_down(chance, one_import)
    async with app.run_test(size=chance.choice(((80, 24), (120, 40)))) as pilot:
        await asyncio.sleep(chance.uniform(0, 0.5))
        for part in keys:
            await burst(pilot, part) if part.startswith("\x1b") else await burst(pilot, *part, seed=seed)
            await asyncio.sleep(chance.uniform(0, 0.1))
        await rest(app)
        said = [told.message for told in app._notifications]
    return {"seed": seed, "keys": keys, "said": said, "screen": type(app.screen).__name__ if app._screen_stack else ""}


async def rest(app: Any) -> None:
    """Wait until the application takes keys and its first readings are done, at most LONGEST_SECONDS."""
    until = time.monotonic() + LONGEST_SECONDS
    still = 0
    while still < 10 and time.monotonic() < until:
        first = ("machine", "checks", "offer", "latest", "sweeping")  # others may wait for an answer
        busy = app.typeahead.busy or any(worker.group in first for worker in app.workers if worker.is_running)
        still = 0 if busy else still + 1
        await asyncio.sleep(0.05)


def start_here(seed: int, one_import: bool) -> None:
    """Carry out one start in this process, which GPUTUI_HOME gives a home of its own. Print its outcome as one line of
    JSON, and end the process.

    The outcome has `fault` if an exception was raised or logged, and `changed` if files of the home have changed.
    `seed` repeats a start. `one_import` is that of `slow_down`.
    """
    home = Path(os.environ["GPUTUI_HOME"])
    before = files(home)
    outcome: dict[str, Any] = {"seed": seed}
    try:
        outcome |= asyncio.run(one_start(seed, one_import))
    except BaseException as fault:  # noqa: BLE001 - told in the outcome
        outcome["fault"] = f"{type(fault).__name__}: {fault}"
    log = home / "tui.log"
    if log.exists():
        outcome["fault"] = outcome.get("fault", "") + " " + log.read_text().strip().splitlines()[-1]
    if (now := files(home)) != before:
        outcome["changed"] = sorted(now ^ before)
    print(json.dumps(outcome), flush=True)
    os._exit(0)


def files(home: Path) -> set[str]:
    """Return the paths of the runs, proofs and presets of a home, relative to the folder that contains the home."""
    found = [*(home / "runs").glob("*"), *(home / "proofs").glob("*"), *home.parent.glob("config/**/*.yaml")]
    return {str(path.relative_to(home.parent)) for path in found}


PLACES: dict[str, tuple[tuple[str, ...], str, str]] = {
    # what leads there and is typed in one burst, the field that takes the text, the text
    "form search": (("/", *"learning"), "#search", "learning"),
    "palette": (("\x10", *"doctor"), "Input", "doctor"),
    "description": (("e", *" words"), "Input", " words"),
    "save as": (("S", *"name"), "Input", "name"),
    "runs filter": ((F4, "/", *"cnn"), "#filter", "cnn"),
    "runs palette": ((F4, "\x10", *"theme"), "Input", "theme"),
    "log filter": ((F3, "l", "/", *"step"), "#log Input", "step"),
    "leave alone": (("T", *["\x1b[B"] * 5, *"cache"), "#leave", "cache"),
    "batch size": ((*["\x1b[B"] * 3, *"64"), "ValueInput", "64"),
}


async def all_bursts(count: int, seed: int) -> Counter[str]:
    """Type `count` bursts, each into the next place of PLACES, beginning at the form. Return the number of bursts by
    place and outcome, such as `palette: right`.

    `seed` is that of the first burst; each further burst has the next number.
    """
    from gputui.tui.app import GputuiApp
    from gputui.tui.form.form_state import FormState

    from tests.support.bursts import burst

    found: Counter[str] = Counter()
    app = GputuiApp()
    with nothing_done() as done:
        async with app.run_test(size=(100, 30)) as pilot:
            await rest(app)
            for number in range(count):
                place = list(PLACES)[number % len(PLACES)]
                keys, field, text = PLACES[place]
                app.clear_notifications()
                await burst(pilot, *keys, seed=seed + number, seconds=random.Random(seed + number).choice((0.003, 0.2)))
                await rest(app)
                await asyncio.sleep(0.4)
                fields = [*app.screen.query(field)] or [*app.screen.query("Input")]
                values = [getattr(one, "value", "") for one in fields]
                said = " ".join(told.message for told in app._notifications)
                right = any(value.endswith(text) for value in values)
                what = "right" if right else "lost and said" if "not used" in said else "LOST SILENTLY"
                if done:
                    what = f"DID {done}"
                    done.clear()
                found[f"{place}: {what}"] += 1
                print(f"burst {seed + number}: {place}: {what}", "" if what in HARMLESS else values, said, flush=True)
                while len(app.screen_stack) > 1:
                    app.pop_screen()
                    await asyncio.sleep(0.05)
                app.form.load(FormState.first())
                app.form._clear_search()
                app.form.set_focus(next(iter(app.form.options.rows.values())))
                await asyncio.sleep(0.7)
                await rest(app)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--starts", type=int, default=200)
    parser.add_argument("--bursts", type=int, default=300)
    parser.add_argument("--burners", type=int, default=0, help="processes that do nothing but burn the CPU")
    parser.add_argument("--at-once", type=int, default=4, help="starts beside each other: they sleep most of the time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--two-imports-at-once", action="store_true", help="as Python does it: to see it fail")
    parser.add_argument("--start-here", type=int)
    wanted = parser.parse_args()
    if wanted.start_here is not None:
        start_here(wanted.start_here, not wanted.two_imports_at_once)
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(wanted.burners)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            return measured(wanted, Path(folder))
    finally:
        for burner in burners:
            burner.kill()


def measured(wanted: argparse.Namespace, folder: Path) -> int:
    from tests.support import recorded

    def start(seed: int) -> dict[str, Any]:
        """Run one start in a process with a home of its own. Return its outcome (`start_here`), or its seed and a
        `fault` if the process failed or took too long.
        """
        home = folder / str(seed) / "home"
        recorded.write(home, name="20260921-100000-cnn", gpus=8, seconds=60)
        words = [sys.executable, str(Path(__file__).resolve()), "--start-here", str(seed)]
        words += ["--two-imports-at-once"] if wanted.two_imports_at_once else []
        longest, here = LONGEST_SECONDS + wanted.burners * MORE_SECONDS, os.environ | environment(home)
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, check=False, cwd=home, env=here, timeout=longest
            )
        except subprocess.TimeoutExpired:
            return {"seed": seed, "fault": f"not ended after {longest:.0f} s"}
        if done.returncode:
            return {"seed": seed, "fault": f"exit code {done.returncode}"}
        return dict(json.loads(done.stdout))

    bad, named = 0, 0
    with ThreadPoolExecutor(wanted.at_once) as pool:
        for line in pool.map(start, range(wanted.seed, wanted.seed + wanted.starts)):
            named += any("not used" in one for one in line.get("said", ()))
            bad += "fault" in line or "changed" in line
            print(f"start {line}", flush=True)
    print(f"{wanted.starts} starts from seed {wanted.seed}: {bad} wrong; {named} said which keys were not used")
    if wanted.bursts:
        os.environ |= environment(folder / "home")
        recorded.write(folder / "home", name="20260921-100000-cnn", gpus=8, seconds=60)
        os.chdir(folder)
        found = asyncio.run(all_bursts(wanted.bursts, wanted.seed))
        for place, count in sorted(found.items()):
            print(f"{count:4d}  {place}")
        bad += sum(count for place, count in found.items() if place.split(": ")[1] not in HARMLESS)
    return int(bad > 0)


def environment(home: Path) -> dict[str, str]:
    return {"GPUTUI_HOME": str(home), "XDG_CONFIG_HOME": str(home.parent / "config"), "GPUTUI_WARM": "0"}


if __name__ == "__main__":
    sys.exit(main())
