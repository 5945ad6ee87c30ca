"""The whole course of comparisons, loops and diagnoses with planted trials, and all that the record then says.

`__snapshots__` holds the courses. A trial takes ten seconds of a clock that only the trials move.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.options import Options
from gputui.engine.profile import reports
from gputui.engine.profile.reports import ProfileError
from gputui.engine.proof import request
from gputui.engine.proof.request import Request
from gputui.engine.trials.change_texts import changes as in_words
from gputui.engine.trials.comparing import BaselineFailed, Stopped

from tests.support.courses import Clock, rounded
from tests.support.courses import clock as clock
from tests.support.proving import Figures, Planted, proving


def flat(options: Options) -> dict[str, Any]:
    return {f"{group}.{name}": value for group, of in asdict(options).items() for name, value in of.items()}


def course(path: Path, clock: Clock, asked: Request, figures: Figures, stop_at: int = 99) -> list[str]:
    before, told = flat(asked.baseline().options), list[str]()

    def watched(options: Options, count: int) -> Planted:
        written = json.loads(made.record.path.read_text())
        changed = {key: value for key, value in flat(options).items()
                   if before[key] != value and not key.startswith(("run.", "notify.", "train."))}  # fmt: skip
        least, most = (written[name] and round(written[name]) for name in ("budget_seconds", "budget_most_seconds"))
        told.append(
            f"{count + 1:02} at {clock.now:g} s of {least} to {most}: {written['doing']}: "
            f"{in_words(changed) or 'nothing'}; {options.run.measure_seconds} s, profile {options.run.profile}"
        )
        if count + 1 == stop_at:
            made.bench.stop.ask()
            return replace(figures(options, count), outcome="stopped")
        return figures(options, count)

    made = proving(path, asked, watched)
    made.record.started_mark = 0.0
    made.bench.passes = lambda seconds: setattr(clock, "now", clock.now + seconds)
    try:
        made.prover.prove()
    except (BaselineFailed, Stopped) as fault:
        told.append(f"{type(fault).__name__}: {fault}")
    made.record.write("ended")
    return [*told, *_of_record(made.written)]


def _of_record(written: dict[str, Any]) -> Iterator[str]:
    for comparison in written["comparisons"]:
        rows = ", ".join(f"{row['run']} {row['outcome']}" for row in comparison["trials"])
        yield f"compared: {_line(comparison, 'trials')} {rows}"
    for name in ("diagnosis", "final_verdict"):
        found = written[name] or {}
        yield f"{name}: {_line(found, 'evidence', 'remedies')}"
        yield from (f"evidence: {_line(each)}" for each in found.get("evidence", ()))
        yield from (f"remedy: {_line(each)}" for each in found.get("remedies", ()))
    for name in ("ablation", "profile_trial"):
        yield f"{name}: {_line(written[name] or {}, 'trials', 'seconds')}"
    names = ("before", "after", "gain_total", "changes_kept", "ended_because", "budget_seconds", "budget_most_seconds",
             "versions", "profile_missing")  # fmt: skip
    yield f"record: {_line({name: written[name] for name in names})}"
    before, after = ((written[name] or "").splitlines() for name in ("preset_before", "preset_after"))
    yield f"new in the preset: {'; '.join(text.strip() for text in after if text not in before)}"


def _line(values: dict[str, Any], *left_out: str) -> str:
    return json.dumps(rounded({key: value for key, value in values.items() if key not in left_out}))


def input_helps(options: Options, before: int) -> Planted:
    """A training whose input a cache makes cheaper, and after that parallel calls; the third trial is lost."""
    cached, parallel = options.input.cache == "memory", options.input.parallel_calls == "auto"
    if before == 2:
        return Planted(outcome="crashed")
    wait = 0.8 if not parallel else 0.3
    speed = 1000.0 * (1 + cached) * (1 + parallel) * (1 + 0.004 * (before % 3)) * (2 if options.input.one_batch else 1)
    return Planted(speed, 0.0 if options.input.one_batch else wait)


def larger_batch(options: Options, before: int) -> Planted:
    return Planted(1000.0 * (options.input.batch_size / 32) ** 0.5 * (1 + 0.01 * (before % 2)), loss=0.5)


def failing(options: Options, before: int) -> Planted:
    return Planted(outcome="oom" if options.input.batch_size > 32 else "ok", error="no room")


def of_change(*settings: str, **more: Any) -> Request:
    return request.of_change("quickstart", settings, **more)


def slow(kind: str, **more: Any) -> Request:
    settings = ("parallel_calls=off", "prefetch=off", "cache=off", "epochs=5", "train.seed=1")
    return request.of_opened(kind, presets.resolve("quickstart", settings), None, **more)


COURSES: dict[str, tuple[Callable[[], Request], Figures]] = {
    "a faster change": (lambda: of_change("batch_size=128"), larger_batch),
    "a slower change": (lambda: of_change("batch_size=8", repeats=4, measure_seconds=3.0), larger_batch),
    "a change that fails": (lambda: of_change("batch_size=64", "cache=off"), failing),
    "a baseline that fails": (lambda: of_change("cache=off"), lambda _options, _before: Planted(outcome="crashed")),
    "a loop": (lambda: slow("loop"), input_helps),
    "a loop without time": (lambda: slow("loop", limit_seconds=130.0), input_helps),
    "a diagnosis": (lambda: slow("diagnosis", ablation_repeats=2, profile=True), input_helps),
    "a loop with all": (lambda: slow("loop", ablation_repeats=1, profile=True, repeats=3, limit_seconds=250.0),
                        input_helps),
}  # fmt: skip


@pytest.mark.parametrize("kind", COURSES)
def test_the_whole_course_of_a_proof(
    tmp_path: Path, clock: Clock, kind: str, snapshot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unread(_run: object) -> Any:
        raise ProfileError("XProf is not\n installed")

    monkeypatch.setattr(reports, "read", unread)
    asked, figures = COURSES[kind]
    assert "\n".join(course(tmp_path / "p", clock, asked(), figures)) == snapshot


def test_the_whole_course_of_a_proof_that_is_stopped(tmp_path: Path, clock: Clock, snapshot: Any) -> None:
    assert "\n".join(course(tmp_path / "p", clock, slow("loop"), input_helps, stop_at=10)) == snapshot


def test_a_change_that_the_code_does_not_read_is_not_compared(tmp_path: Path, clock: Clock) -> None:
    reasons = {"input.batch_size": "your code has batched the data"}
    figures = lambda _options, _before: Planted(inapplicable=reasons)  # noqa: E731
    said = "\n".join(course(tmp_path / "p", clock, of_change("batch_size=128"), figures))
    assert '"why": "input.batch_size does nothing here: your code has batched the data"' in said
    assert "03 at" not in said, "no third trial"
    assert '"learning"' not in said, "what does nothing changes nothing that is learnt"
    both = "\n".join(course(tmp_path / "q", clock, of_change("batch_size=128", "cache=off"), figures))
    assert "does nothing here" not in both, "the other change may have an effect"
