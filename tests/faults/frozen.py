"""The frozen faults: drawn once, and kept with the test that noticed each, as the gate for every test that is deleted.

frozen.jsonl has one fault in each line, named by its function and the text of its lines, so that it is found again when
its code has moved; a fault whose code is gone leaves the list.
"""

from __future__ import annotations

import ast
import json
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tests.faults.one_line import Functions, by_hand, faults
from tests.faults.planted import noticed_by
from tests.faults.reached import ROOT, Reached

LIST = Path(__file__).with_name("frozen.jsonl")
DECIDING = {
    "comparison", "and/or", "operand left out", "not left out", "always the first", "always the second", "never",
    "always", "min/max, any/all", "arithmetic", "sign", "slice left out", "statement left out",
}  # fmt: skip
# Of these, nearly every line words, draws or declares.
OF_TEXTS = ("word", "printing", "drawing", "markdown", "sentences", "texts", "themes", "declared", "figures/")
SHARE_OF_SCREENS = 0.2  # of the faults; the rest is the engine's
WORKERS = 3


@dataclass(frozen=True)
class Frozen:
    file: str
    function: str  # its qualified name
    kind: str
    before: str  # lines of the function, as they stand in the file
    after: str
    outcome: str  # noticed | survived | unreached
    by: str = ""  # the test that noticed it


def freeze(count: int, seed: int, seconds: float) -> None:
    """Draws faults of code that decides, runs the tests that reach each, and writes the list."""
    reached = Reached()
    drawing = random.Random(seed)
    of_screens = round(count * SHARE_OF_SCREENS)
    drawn = [*_drawn("engine", drawing, count - of_screens), *_drawn("tui", drawing, of_screens)]
    with ThreadPoolExecutor(WORKERS) as workers, LIST.open("w", encoding="utf-8") as file:
        for fault in workers.map(lambda fault: _judged(fault, reached, seconds, []), drawn):
            file.write(json.dumps(asdict(fault)) + "\n")
            file.flush()
    print(Counter(fault.outcome for fault in read()))


def replay(files: list[str], seconds: float, also: list[str], anew: bool) -> bool:
    """Plants the faults of `files` (of all, if empty) again, and writes the list; True if none has been lost.

    Unless `anew`, a fault whose noticing test is still there counts as noticed.
    """
    reached = Reached()

    def judged(fault: Frozen) -> Frozen | None:
        if files and not any(fault.file.startswith(name) for name in files):
            return fault
        if not anew and (fault.outcome != "noticed" or exists(fault.by)):
            return fault
        return _judged(fault, reached, seconds, also) if found_in(fault) else None

    before = read()
    with ThreadPoolExecutor(WORKERS) as workers:
        after = list(workers.map(judged, before))
    lost = 0
    with LIST.open("w", encoding="utf-8") as file:
        for old, new in zip(before, after, strict=True):
            if new is None:
                print(f"gone: {old.file} {old.function}: {old.before.strip()}")
                continue
            if old.outcome == "noticed" != new.outcome:
                lost += 1
                print(f"LOST: {old.file} {old.function} (was noticed by {old.by})")
                print(f"    - {old.before.strip()}\n    + {old.after.strip()}")
                new = old  # stays as a duty
            file.write(json.dumps(asdict(new)) + "\n")
    print(dict(Counter(fault.outcome for fault in after if fault)), f"{lost} lost")
    return not lost


def read() -> list[Frozen]:
    return [Frozen(**json.loads(line)) for line in LIST.read_text(encoding="utf-8").splitlines()]


def _judged(fault: Frozen, reached: Reached, seconds: float, also: list[str]) -> Frozen:
    file, source = found_in(fault) or (fault.file, "")
    planted = by_hand(source, fault.before, fault.after)
    reaching = [test for test in reached.tests(file, source, planted.line, planted.last_line) if exists(test)]
    tests = [*also, *reached.chosen([test for test in reaching if test.partition("::")[0] not in also], seconds)]
    by = noticed_by(file, planted.planted(source), tests, 60 + 3 * reached.total_seconds(tests)) if tests else None
    outcome = "noticed" if by else "survived" if tests else "unreached"
    print(f"{outcome}: {file} {fault.function} ({fault.kind}) {by or ''}", flush=True)
    return replace(fault, file=file, outcome=outcome, by=by or "")


def found_in(fault: Frozen) -> tuple[str, str] | None:
    """File and source with the fault's lines exactly once: its own file, or the only one whose function has them."""
    own = ROOT / fault.file
    paths = [own] if own.exists() else []
    paths += [path for path in sorted([*ROOT.glob("engine/**/*.py"), *ROOT.glob("tui/**/*.py")]) if path != own]
    for path in paths:
        source = path.read_text(encoding="utf-8")
        if source.count(fault.before) == 1 and any(
            name == fault.function and fault.before.rstrip("\n") in ast.get_source_segment(source, node, padded=True)  # type: ignore[operator]
            for name, node in _functions(ast.parse(source))
        ):
            return str(path.relative_to(ROOT)), source
    return None


def exists(test: str) -> bool:
    path, _, name = test.partition("::")
    file = ROOT / path
    return file.exists() and f"def {name.partition('[')[0].rpartition('::')[2]}(" in file.read_text(encoding="utf-8")


def _drawn(root: str, drawing: random.Random, count: int) -> list[Frozen]:
    """Not two of one function, as long as there are others."""
    found = []
    for path in sorted((ROOT / root).rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if any(word in name for word in OF_TEXTS):
            continue
        source = path.read_text(encoding="utf-8")
        lines = source.splitlines(keepends=True)
        inner = dict(_lines_of_functions(source))
        for fault in faults(source):
            function = inner.get(fault.line)
            if fault.kind not in DECIDING or function is None:
                continue
            before = "".join(lines[fault.line - 1 : fault.last_line])
            try:
                changed = fault.planted(source)
            except SyntaxError:
                continue
            tail = len("".join(lines[fault.last_line :]))
            after = changed[len("".join(lines[: fault.line - 1])) : len(changed) - tail]
            if source.count(before) == 1 and before != after:
                found.append(Frozen(name, function, fault.kind, before, after, "unreached"))
    drawing.shuffle(found)
    firsts = {(fault.file, fault.function): fault for fault in reversed(found)}
    return drawing.sample(list(firsts.values()), count)


def _lines_of_functions(source: str) -> Iterator[tuple[int, str | None]]:
    """Each line of a function with the innermost function's name; None if that gives a text or begins an object."""
    for name, node in _functions(ast.parse(source)):
        returned = ast.unparse(node.returns) if node.returns else ""
        left_alone = "str" in returned or "Text" in returned or node.name == "__init__"
        for line in range(node.body[0].lineno, (node.end_lineno or 0) + 1):
            yield line, None if left_alone else name


def _functions(tree: ast.AST, within: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Outer ones first."""
    for node in ast.iter_child_nodes(tree):
        name = f"{within}.{node.name}".lstrip(".") if isinstance(node, (*Functions, ast.ClassDef)) else within
        if isinstance(node, Functions):
            yield name, node
        yield from _functions(node, name)
