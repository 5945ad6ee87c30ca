"""`python -m tests.faults FILE...`: plants faults of a line in the product, and names those that no test notices.

First `python -m tests.faults --reach` runs the whole suite once under coverage.py, about half an hour, so that each
fault needs only the tests that reach its line.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from difflib import unified_diff

from tests.faults.frozen import freeze, replay
from tests.faults.one_line import Fault, by_hand, faults
from tests.faults.planted import noticed_by
from tests.faults.reached import ROOT, Reached, run_suite


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="*", metavar="FILE", help="a file or folder of engine/ or tui/; FILE:LINE-LINE")
    parser.add_argument("--reach", action="store_true", help="run the suite under coverage.py (only FILE..., if given)")
    parser.add_argument("--faults", type=int, default=40, metavar="N", help="so many, drawn at random (default: 40)")
    parser.add_argument("--seed", type=int, default=0, help="another draw (default: 0)")
    parser.add_argument("--seconds", type=float, default=20, help="tests for each fault, by their times (default: 20)")
    parser.add_argument("--also", nargs="*", default=[], metavar="TEST", help="tests for each fault, such as new ones")
    parser.add_argument("--unreached", action="store_true", help="only list the lines that no test reaches")
    parser.add_argument("--replace", nargs=2, metavar=("OLD", "NEW"), help="instead: this text of the one FILE")
    parser.add_argument("--freeze", action="store_true", help="instead: draw --faults and keep them in frozen.jsonl")
    parser.add_argument("--frozen", action="store_true", help="instead: the kept faults whose noticing test is gone")
    parser.add_argument("--anew", action="store_true", help="with --frozen: also those whose test still stands")
    given = parser.parse_args()
    if given.reach:
        return run_suite(given.files)
    if given.freeze:
        freeze(given.faults, given.seed, given.seconds)
        return 0
    if given.frozen:
        return 0 if replay(given.files, given.seconds, given.also, given.anew) else 1
    try:
        reached = Reached()
    except FileNotFoundError:
        parser.error("no run under coverage.py is kept: python -m tests.faults --reach")
    if not given.files:
        parser.error("give files or folders of engine/ or tui/")
    try:
        if given.replace:
            [file] = given.files
            drawn = [(file, by_hand((ROOT / file).read_text(encoding="utf-8"), *given.replace))]
        else:
            drawn = _drawn(given.files, given.seed)
            drawn = drawn if given.unreached else drawn[: given.faults]
        counts = Counter(_report(reached, given, file, fault) for file, fault in drawn)
    except (OSError, ValueError, SyntaxError) as error:
        parser.error(str(error))
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return 0


def _report(reached: Reached, given: argparse.Namespace, file: str, fault: Fault) -> str:
    """Plants a fault and prints it, but for one of a draw that is noticed; gives the outcome."""
    source = (ROOT / file).read_text(encoding="utf-8")
    changed = fault.planted(source)
    reaching = reached.tests(file, source, fault.line, fault.last_line)
    if given.unreached and reaching:
        return "reached"
    # Of a file and tests in it, pytest runs only these tests.
    others = [test for test in reaching if test.partition("::")[0] not in given.also]
    tests = [*given.also, *reached.chosen(others, given.seconds)]
    outcome = "unreached"
    if tests:
        limit = 60 + 3 * reached.total_seconds(tests)
        outcome = "noticed" if noticed_by(file, changed, tests, limit) else "survived"
    if outcome != "noticed" or given.replace:
        print(f"{outcome}: {file}:{fault.line} ({fault.kind}; {len(tests)} of {len(reaching)} tests)")
        differing = unified_diff(source.splitlines(), changed.splitlines(), n=0, lineterm="")
        print(*(f"    {line}" for line in differing if line[:3] not in ("---", "+++", "@@ ")), sep="\n", flush=True)
    return outcome


def _drawn(files: list[str], seed: int) -> list[tuple[str, Fault]]:
    """One fault of each line that has any, in a random order."""
    drawing = random.Random(seed)
    found = []
    for name in files:
        path, _, lines = name.partition(":")
        first, last = map(int, lines.split("-")) if lines else (1, sys.maxsize)
        for file in sorted((ROOT / path).rglob("*.py")) if (ROOT / path).is_dir() else [ROOT / path]:
            by_line: dict[int, list[Fault]] = {}
            for fault in faults(file.read_text(encoding="utf-8")):
                if first <= fault.line <= last:
                    by_line.setdefault(fault.line, []).append(fault)
            found += [(str(file.relative_to(ROOT)), drawing.choice(those)) for those in by_line.values()]
    drawing.shuffle(found)
    return found


if __name__ == "__main__":
    sys.exit(main())
