"""A campaign of faults: each kind of fault is injected many times, and the outcome is judged from outside.

    python -m benchmarks.faults [--only WORD ...] [--times N] [--at-once N] [--seed S]

To be run in the repository's root. Kinds that need root (mounts, namespaces) are left out without it, and named. A row
of the table is a kind: the number of cases, and of cases without a violation. The exit code is 1 after a violation.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from . import around, code, ends, keys, lives, reading, storage
from .lab import Violation

CHEAP, DEAR = 20, 5  # times; a dear case trains more than once
DAMAGED_ROUNDS = 4  # through all kinds of damage to a file


@dataclass(frozen=True)
class Kind:
    group: str
    name: str
    times: int
    case: Callable[[random.Random], None]
    alone: bool = False  # runs in this process, which has one environment and one alarm clock
    root: bool = False


def kinds() -> Iterator[Kind]:
    """Yield all kinds of fault, the cheapest first."""
    for file in ("status.json", "result.json", "events.jsonl", "telemetry.jsonl", "preset.yaml"):
        yield Kind("files", f"damaged {file}, each kind", DAMAGED_ROUNDS, reading.damaged_file(file), alone=True)
    yield from _lives()
    yield from _ends()
    yield from _storage()
    for name in code.BODIES:
        yield Kind("user code", name, DEAR, code.ends_well(name))
    yield Kind("user code", "relative home, another folder", DEAR, code.elsewhere)
    for label, name in (("newline", "a\nb"), ("escape", "a\x1b[31mb"), ("no UTF-8", "a\udcffb"), ("spaces", "a b 'c'")):
        yield Kind("surroundings", f"a home with {label} in its name", DEAR, code.odd_home(name))
    yield from _around()
    for text, *shown in (("/train", "train"), ("/run", "run"), ("/start", "start"), ("osay", "")):
        yield Kind("keys", f"{text} in the form", DEAR, keys.form(text, *filter(None, shown)))
    yield Kind("keys", "a number on an option's row", DEAR, keys.value)
    yield Kind("keys", "/diverge and Enter in the runs", DEAR, keys.runs_filter)


def _lives() -> Iterator[Kind]:
    for label, seconds in (("+1 s", 1), ("-1 s", -1), ("+1 h", 3600), ("-1 h", -3600)):
        yield Kind("clock", f"set by {label}, seen by viewers", DEAR, lives.seen_after(seconds), root=True)
        yield Kind("clock", f"set by {label} in mid-run", DEAR, lives.clock_set(seconds))
    yield Kind("clock", "set back and forth in mid-run", DEAR, lives.clock_set(3600, -3600, 86400, 0))
    yield Kind("clock", "a preset.yaml from the future", DEAR, around.relative_clock_free)
    yield Kind("machines", "seen from another one", DEAR, lives.other_machine, root=True)
    yield Kind("together", "two resumes at once", CHEAP, lives.resumes_at_once(2))
    yield Kind("together", "six resumes at once", CHEAP // 2, lives.resumes_at_once(6))
    for how in ("mine", "of another user"):
        yield Kind("status.json", f"names a process, {how}", CHEAP, lives.foreign_status(how), root=how != "mine")
    yield Kind("status.json", "a run is private", DEAR, lives.private)
    for role in ("trainer", "engine"):
        yield Kind("warm", f"the warm {role} is killed", DEAR, lives.warm_killed(role))


def _ends() -> Iterator[Kind]:
    for name in ("SIGKILL", "SIGTERM", "SIGINT"):
        number = getattr(signal, name)
        for who in ends.WHO:
            yield Kind("signals", f"{name} to {who}, resumed", DEAR, ends.disturbed(number, who))
            if name != "SIGKILL":
                yield Kind("signals", f"{name} to {who} at the start", 2 * DEAR, ends.stopped_early(number, who))
    yield Kind("signals", "SIGHUP to all", DEAR, ends.hang_up)
    yield Kind("signals", "Ctrl-C in the first second", CHEAP, ends.interrupted_at_start)
    yield Kind("signals", "Ctrl-C twice", DEAR, ends.twice)


def _storage() -> Iterator[Kind]:
    for name, damage in storage.DAMAGES.items():
        yield Kind("checkpoints", name, DEAR, storage.damaged(damage))
    for name in storage.FOREIGN:
        yield Kind("checkpoints", f"{name} beside them", DEAR, storage.foreign(name))
    yield Kind("checkpoints", "all damaged", DEAR, storage.all_damaged)
    yield Kind("checkpoints", "a draft is left", DEAR, storage.draft_left)
    yield Kind("disk", "full for 3 s", DEAR, storage.full_for_a_while(3), root=True)
    yield Kind("disk", "full for 10 s", DEAR, storage.full_for_a_while(10), root=True)
    yield Kind("disk", "full to the end", DEAR, storage.full_to_the_end, root=True)
    yield Kind("disk", "full at the start", DEAR, storage.full_at_start, root=True)
    yield Kind("disk", "no inodes for 3 s", DEAR, storage.no_inodes, root=True)
    yield Kind("disk", "no new files for 3 s", DEAR, storage.immutable, root=True)
    yield Kind("disk", "ulimit -f", DEAR, storage.file_size_limit)


def _around() -> Iterator[Kind]:
    limits = {"ulimit -v, 1 GB": 1_000_000, "ulimit -v, 2 GB": 2_000_000}
    for label, kilobytes in limits.items():
        case = around.named("memory", codes=(0, 1, 3), shell=f"ulimit -v {kilobytes}")
        yield Kind("surroundings", label, DEAR, case)
    odd = {
        "KERAS_BACKEND=jax": ("", (0,), {"KERAS_BACKEND": "jax"}),
        "TF_XLA_FLAGS, unknown": ("tf_xla_flags", (0, 1, 2), {"TF_XLA_FLAGS": "--no_such_flag"}),
        "XLA_FLAGS, unknown": ("xla_flags", (0, 1, 2), {"XLA_FLAGS": "--no_such_flag"}),
    }
    for label, (word, codes, variables) in odd.items():
        yield Kind("surroundings", label, DEAR, around.named(word, codes=codes, **variables))
    for redirection in (">&-", "<&-", "2>&-"):
        yield Kind("terminal", f"gputui {redirection}", DEAR, around.descriptors_closed(redirection))
    yield Kind("terminal", "gputui | head -1", DEAR, around.reader_gone)
    yield Kind("terminal", "Ctrl-C while stdout is blocked", DEAR, around.blocked)


def tried(kind: Kind, seed: int) -> str:
    """Carry out one case of a kind. Return what was wrong, empty if nothing was. The same seed gives the same case."""
    try:
        kind.case(random.Random(f"{kind.group} {kind.name} {seed}"))
    except Violation as violation:
        return str(violation)
    except Exception:  # noqa: BLE001 - the other cases follow, whatever one of them does
        return f"the campaign itself failed: {traceback.format_exc(limit=-2)}"
    return ""


def outcomes(kind: Kind, seeds: range, at_once: int) -> list[str]:
    """Carry out a case for each seed, `at_once` at a time. Return for each what was wrong, empty if nothing was."""
    if kind.alone:
        return [tried(kind, seed) for seed in seeds]
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda seed: tried(kind, seed), seeds))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="kinds whose group or name holds one of these words")
    parser.add_argument("--times", type=int, help="at most so often, each kind")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1, help="cases side by side")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    chosen = [k for k in kinds() if not asked.only or any(word in f"{k.group} {k.name}" for word in asked.only)]
    began, bad = time.monotonic(), 0
    print("| campaign | kind | times | held | what did not |\n| --- | --- | ---: | ---: | --- |", flush=True)
    for kind in chosen:
        if kind.root and os.geteuid() != 0:
            print(f"| {kind.group} | {kind.name} | 0 | 0 | left out: it needs root |", flush=True)
            continue
        times = min(kind.times, asked.times or kind.times)
        wrong = [what for what in outcomes(kind, range(asked.seed, asked.seed + times), asked.at_once) if what]
        bad += len(wrong)
        told = " ".join(wrong[0].split())[:300].replace("|", "/") if wrong else ""
        print(f"| {kind.group} | {kind.name} | {times} | {times - len(wrong)} | {told} |", flush=True)
    print(f"\n{len(chosen)} kinds, {time.monotonic() - began:.0f} s, {bad} violations")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
