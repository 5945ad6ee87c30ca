"""The report of a measurement, made once for each kind: chapters of sentences, tables and bars."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import figures
from ..diagnosis import label
from ..diagnosis.measurements import stage_ms
from ..options import BY_KEY, PRIVATE
from ..plan import LEAST_STEPS
from ..profile import reports
from ..text_table import Bars, Code, Table, escaped
from ..units import NONE, amount, change, count, counted, seconds, share, size, spread, times
from . import proof_sentences, search_results, sweep_record
from .change_texts import short, value
from .kinds import kind
from .record import Comparison, Record, Trial, search_of
from .search_results import WITHOUT_INPUT, memory_of, ranked
from .significance import LEAST_GAIN, spreads
from .sweep_record import PROOF, SEARCH, Sweep

Block = str | list[str] | Table  # a sentence (text to be typed as Code), a list of sentences, or a table
_FIGURES = figures.shown("trial")


@dataclass
class Chapter:
    """A part of a report. `is_told`: the lines that were printed while it was measured have said it."""

    title: str
    blocks: list[Block]
    is_told: bool = False


def chapters(data: Record) -> Iterator[Chapter]:
    """Yield the chapters in their order: the tables and reasons behind the `answer`."""
    if data.diagnosis:
        yield Chapter("At first", list(diagnosis(data.diagnosis)))
    if data.ablation:
        blocks: list[Block] = [proof_sentences.input_cost(data.ablation)]
        yield Chapter("Without input", blocks + [input_stages(each) for each in [data.ablation.stages] if each])
    if data.profile_trial:
        profile = proof_sentences.profile_of(data)
        lines = list(reports.lines(profile)) if profile else proof_sentences.profile_in_brief(data)
        yield Chapter("Profile", [Code("\n".join(lines))])
    if data.search:
        yield from _search(data)
    if data.scaling and data.scaling.points:
        blocks = [scaling(data), proof_sentences.scaling_about(data), list(proof_sentences.scaling_remarks(data))]
        yield Chapter(data.scaling.unit, blocks)
    if data.rate and (suggestion := proof_sentences.suggestion(data.rate)):
        yield Chapter("The ramp", [f"{suggestion} ({proof_sentences.RATE_SOURCE})"])
    if data.sweep:
        for part, title in ((PROOF, "On fresh seeds"), (SEARCH, "In the search")):
            if (table := groups(data.sweep, part)).rows:
                yield Chapter(title, [table])
        about = (sweep_record.saved, sweep_record.luck, sweep_record.mattered, sweep_record.tested)
        if texts := [text for of in about if (text := of(data.sweep))]:
            yield Chapter("The selection", [*texts])
    if data.comparisons:
        why = [f"{proof_sentences.changes(each.changes)} was tried: {each.reason}"
               for each in data.comparisons if data.kind != "ab" and each.reason]  # fmt: skip
        learnt = [proof_sentences.learned(each.learning) for each in data.comparisons if each.learning]
        yield Chapter("In pairs", [comparisons(data.comparisons), [*why, *learnt]])
    if (data.before or data.after) and data.kind not in ("diagnosis", "scaling"):
        several = sum(comparison.decision == "kept" for comparison in data.comparisons) > 1
        how = (
            "the smaller of two figures: the gains of what is kept, multiplied, and the speed in the last pair divided "
            "by that in the first"
            if several
            else "the median gain of the pairs; the table has the figures of that pair"
        )
        gain = [f"{proof_sentences.speedup(data)} ({how})"] if data.gain_total else []
        yield Chapter("Before and after", [before_and_after(data), *gain])
    for section in data.sections:
        yield Chapter(section.title, [*([section.table] if section.head else []), section.sentences])
    if (data.ended_because or data.advice) and not proof_sentences.only_predicts(data):
        ended = [f"ended because: {data.ended_because}"] if data.ended_because else []
        code = [Code("\n".join(lines))] if (lines := proof_sentences.code_of(data.advice)) else []
        yield Chapter("The end", [*ended, *code])
    if (all_trials := sweep_record.trials_table(data.sweep) if data.sweep else trials(titled(data))).rows:
        yield Chapter("All trials", [all_trials], is_told=True)


def answer(data: Record) -> Iterator[tuple[str, str]]:
    """Yield the answer of a measurement: what to change, after an empty word; then with a word before each text the
    gain, whether it learns the same, what was not judged, and what limits the result."""
    if data.state == "running":
        yield "", f"running: {data.doing}"
        return
    headline = proof_sentences.headline(data)
    yield "", headline
    if proof_sentences.only_predicts(data) or data.state in ("waiting", "failed"):
        return
    compared = data.comparisons if data.kind == "loop" else data.comparisons[-1:]
    for comparison in compared:
        is_named = data.kind == "ab" or comparison.changes == proof_sentences.to_take(data)
        what = "" if is_named else f"{proof_sentences.changes(comparison.changes)}: "
        if text := proof_sentences.gain_in_words(comparison):
            yield "gain" if comparison.gain is not None else "why", f"{what}{text}"
    so_far = None if compared or data.gain_total is not None else search_results.gain_so_far(data)
    if so_far is not None and proof_sentences.to_take(data):
        yield "gain", f"{change(so_far)} in single trials, which prove nothing"
    if data.rate and data.rate.why != headline:
        yield "why", data.rate.why
    if data.sweep and (luck := sweep_record.luck(data.sweep)):
        yield "selection", luck
    if data.sweep and (mattered := sweep_record.mattered(data.sweep)):
        yield "mattered", mattered
    if data.sweep and (tested := sweep_record.tested(data.sweep)):
        yield "test", tested
    yield from _learning(data)
    if data.ended_because.startswith(proof_sentences.OUT_OF_TIME) or (data.sweep and data.state == "done"):
        yield "not tried", data.ended_because
    if data.scaling:
        yield from (("because", text) for text in proof_sentences.scaling_remarks(data))
    if data.final_verdict:
        yield "limited by", data.final_verdict["sentence"]
    if data.diagnosis and data.kind == "diagnosis":
        tried = [remedy["changes"] for remedy in data.diagnosis.get("remedies") or () if remedy.get("changes")]
        yield "also", proof_sentences.others(data.diagnosis)
        yield "to try", "; ".join(map(proof_sentences.changes, tried))
    yield from (("advice", each["reason"]) for each in data.advice)
    yield "disturbed", proof_sentences.disturbance(data)


def _learning(data: Record) -> Iterator[tuple[str, str]]:
    """Whether what is taken learns as well, and which faster settings do not, or were not judged."""
    taken, is_open = proof_sentences.to_take(data), data.state != "done" and not data.comparisons
    checks = [check for check in search_of(data).losses if check.decision != "running"]
    for check in checks:
        after = "" if check.samples is None else f", after {counted(check.samples, 'samples')}"
        losses = f"{check.of} loss {amount(check.loss_b)}, {amount(check.loss_a)} with the preset{after}"
        is_known, learns = check.decision in ("worse", "no worse"), f"{check.decision}: {losses}"
        learns = learns if is_known else f"not judged: {check.why or 'it was not measured'}"
        if check.settings == taken:
            yield "learning", learns
        elif check.decision == "worse" and check is checks[0]:
            yield "not chosen", f"{proof_sentences.changes(check.settings)}: {learns}"
        elif not is_known:
            yield "not judged", f"{proof_sentences.changes(check.settings)}: {check.why}"
    of_pairs = [each for each in data.comparisons if each.decision in ("kept", "faster") or data.kind == "ab"]
    for comparison in of_pairs:
        if (learning := comparison.learning) is not None:
            yield "learning", proof_sentences.losses_in_words(learning)
    is_judged = any(check.settings == taken for check in checks) or any(each.learning for each in of_pairs)
    is_smaller = data.kind == "tune" and bool(data.changes_kept) and not data.comparisons  # so that it fits
    if taken and data.kind in ("ab", "loop", "tune") and not is_judged and not is_smaller:
        may_change = any(key not in BY_KEY or BY_KEY[key].about.learning for key in taken)
        yield "learning", "not judged" if is_open or may_change else "as before: no changed option affects it"


def as_markdown(data: Record) -> str:
    title = kind(data.kind).title or capital(kind(data.kind).about) or "Proof"
    title = "What memory it takes" if proof_sentences.only_predicts(data) else title
    made = [
        f"# {title}: {escaped(data.preset_name)}",
        f"**{escaped(capital(proof_sentences.headline(data)))}.**",
        *_markdown([[f"{word}: {text}" for word, text in answer(data) if word and text]]),
        _properties(data).markdown(),
    ]
    for chapter in chapters(data):
        made += [f"## {escaped(capital(chapter.title))}", *_markdown(chapter.blocks)]
    text, title = data.preset_after or data.preset_before, "The resulting preset" if data.preset_after else "The preset"
    if data.preset_after and data.changes_kept:
        title += f" ({proof_sentences.changes(data.changes_kept)})"
    made += [f"## {escaped(title)}", f"```yaml\n{without_private(text).strip()}\n```"]
    return "\n\n".join(made) + "\n"


def _markdown(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, Table):
            yield block.markdown()
        elif isinstance(block, Code):
            yield f"```\n{block}\n```"
        elif isinstance(block, str):
            yield f"{escaped(capital(block))}."
        elif block:
            yield "\n".join(f"- {escaped(capital(line))}." for line in block)


def without_private(text: str) -> str:
    """Return the YAML text of a preset without its private groups, for reports that may be shared."""
    return re.sub(rf"(?m)^({'|'.join(PRIVATE)}):.*\n(?:[ \t].*(?:\n|\Z))*", "", text)


def capital(text: str) -> str:
    """Return the text with a capital letter, unless its first word is a setting such as `cache=memory`."""
    return text if "=" in text.split(" ", 1)[0] else text[:1].upper() + text[1:]


# ---- what was measured, and how -------------------------------------------------------------------


def _properties(data: Record) -> Table:
    machine = data.machine
    gpus = ", ".join(str(name) for name in machine.get("gpus") or ()) or f"none ({machine.get('no_gpu_reason') or '-'})"
    taken = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(data.started_t))
    cpus = f"{machine.get('cpus', '-')} CPUs ({machine.get('processor') or 'unknown'})"
    versions = {"gputui": machine.get("gputui", "-"), **data.versions}
    rows = [
        ("proof", f"`{data.id}`, {data.state}"),
        ("taken", f"{taken}, in {seconds(data.seconds)}"),
        ("asked", _question(data)),
        ("method", _method(data)),
        ("machine", f"{cpus}, {size(machine.get('memory_bytes'))}, {machine.get('system', '-')}"),
        ("GPUs", gpus),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
    ]
    return Table(["", ""], rows)


def _method(data: Record) -> str:
    if proof_sentences.only_predicts(data):
        return "a line of memory over the batch size through short trials, each of a few steps in a process of its own"
    if declared := kind(data.kind).method:
        return declared
    pairs = counted(data.repeats, "pairs")
    counts = f"counts beyond {share(LEAST_GAIN)} and {spreads(data.repeats):.2f} spreads of the pairs"
    each = (
        f"each in fresh processes, {data.measure_seconds:g} s and at least {LEAST_STEPS} steps measured after "
        "the warm-up, speeds as means over it"
    )
    if data.kind == "scaling":
        return (
            f"{counted(data.repeats, 'rounds')} of trials, one for each number of "
            f"{proof_sentences.scaling_of(data).unit}, up and down in turn, {each}; "
            f"{proof_sentences.scaling_kept(data)}"
        )
    if data.kind == "rate":
        return (
            f"a ramp of the learning rate, then {pairs} of trainings with the preset's rate and with the suggestion, "
            f"each pair with a new seed and on the same number of samples; the ratio of the losses {counts}"
        )
    if data.sweep is not None:
        return sweep_record.ABOUT
    if data.kind == "diagnosis":
        return f"{pairs} of trials, with its input and on one repeated batch, {each}"
    return (
        f"{pairs} of alternating trials (a b, b a, ...), {each}; a gain is the median of the pairs' gains, and {counts}"
    )


def _question(data: Record) -> str:
    if data.kind == "ab" and data.comparisons:
        return f"`--preset {data.preset_name} {proof_sentences.settings(data.comparisons[0].changes)}`"
    if proof_sentences.only_predicts(data):
        return "what memory this training takes, and its largest batch; nothing else was searched (`--dry-run`)"
    if data.kind == "scaling":
        return f"how the speed grows with the number of {proof_sentences.scaling_of(data).unit}"
    if data.sweep is not None:
        return f"with which settings the training learns best: {sweep_record.swept(data.sweep.settings)}"
    return kind(data.kind).question


# ---- a diagnosis ----------------------------------------------------------------------------------


def diagnosis(findings: Mapping[str, Any]) -> Iterator[Block]:
    """Yield the verdict of a diagnosis, its evidence with thresholds and sources, and its remedies."""
    yield from filter(None, (findings.get("learning"), findings.get("learning_remedy")))
    yield findings["sentence"]
    if findings["verdict"] != "undecided":
        yield f"confidence {share(findings['confidence'])}, from {counted(findings['steps'], 'steps')}"
    if findings["evidence"]:
        rows = []
        for piece in findings["evidence"]:
            figure = figures.evidence(piece["signal"], piece["unit"])
            value, threshold = figure.text(piece["value"]), figure.text(piece.get("threshold"))
            rows.append([piece["text"], value, threshold, piece["source"]])
        yield Table(["evidence", "value", "threshold", "source"], rows)
    if findings.get("others"):
        yield f"also: {', '.join(label(name) for name in findings['others'])}"
    if remedies := findings.get("remedies"):
        rows = []
        for place, remedy in enumerate(remedies, 1):
            learns = "; changes what is learnt" if remedy.get("changes_learning") else ""
            what = settings(remedy["changes"]) or "(advice)"
            rows.append([str(place), what, remedy["reason"] + learns, at_most(remedy.get("expected_gain"))])
        yield Table(["", "remedy", "reason", "expected"], rows)
        if code := proof_sentences.code_of(remedies):
            yield Code("\n".join(code))


def input_stages(stages: Sequence[Mapping[str, Any]]) -> Table:
    """Return the stages of the input from its source, the slowest marked; parallel calls are accounted for."""
    each_ms = [stage_ms(stage) for stage in stages]
    slowest = max((ms for ms in each_ms if ms), default=None)
    rows = [
        [
            stage["name"],
            stage.get("op") or NONE,
            amount(ms),
            str(stage.get("parallelism") or NONE),
            amount(stage.get("ms_per_batch")),
            "slowest" if slowest and ms == slowest else "",
        ]
        for stage, ms in zip(stages, each_ms, strict=True)
    ]
    head = ["input stage", "operation", "ms from batch to batch", "calls at a time", "ms of work", ""]
    return Table(head, rows, right=(2, 3, 4))


# ---- trials and comparisons -----------------------------------------------------------------------


def titled(data: Record) -> list[tuple[str, Trial]]:
    """Return all trials with their titles, each once, in the order of their start."""
    rows = [("as it is", trial) for trial in data.baseline_trials]
    ablated = data.ablation.trials if data.ablation else ()
    rows += [("one repeated batch" if trial.side == "b" else "as it is", trial) for trial in ablated]
    if data.profile_trial:
        rows.append(("profiled", data.profile_trial))
    rows += [(search_results.title(each), trial) for each in search_of(data).candidates for trial in each.trials]
    rows += [(f"loss: {search_results.trained(check, trial)}", trial)
             for check in search_of(data).losses for trial in check.trials]  # fmt: skip
    rows += proof_sentences.rate_titled(data.rate) if data.rate else ()
    for point in data.scaling.points if data.scaling else ():
        rows += [(counted(point.number, proof_sentences.scaling_of(data).unit), trial) for trial in point.trials]
    by_run = {trial.run: (title, trial) for title, trial in rows}
    for comparison in data.comparisons:
        what = proof_sentences.changes(comparison.changes)
        for trial in comparison.trials:
            by_run.setdefault(trial.run, (f"{'with' if trial.side == 'b' else 'without'} {what}", trial))
    return [by_run[run] for run in sorted(by_run)] if data.kind == "scaling" else list(by_run.values())


def trials(rows: Sequence[tuple[str, Trial]]) -> Table:
    """Return a table of trials with their titles, failed ones included, without figures that no trial has."""
    columns = [figure for figure in _FIGURES if any(trial.figure(figure.key) is not None for _, trial in rows)]
    cells = [
        [
            trial.run,
            title,
            str(trial.repeat),
            *(figure.bare(trial.figure(figure.key)) for figure in columns),
            proof_sentences.outcome(trial),
        ]
        for title, trial in rows
    ]
    of_figures = range(3, 3 + len(columns))
    names = ["trial", "", "repeat", *(figure.head for figure in columns), "outcome"]
    spare = sorted(of_figures, key=lambda at: names[at] != "loss")  # which is measured for its own sake
    return Table(names, cells, right=(2, *of_figures), spare=spare)


def comparisons(rows: Sequence[Comparison]) -> Table:
    """Return a table of the comparisons: the change, its gain and spread, and the decision with its reason."""
    cells = [
        [
            settings(each.changes),
            change(each.gain),
            spread(each.spread),
            at_most(each.expected_gain),
            each.decision,
            each.why,
        ]
        for each in rows
    ]
    bars = Bars([each.interval for each in rows], after=2)
    return Table(["change", "gain", "spread", "expected", "decision", "why"], cells, right=(1, 2), bars=bars)


def settings(changed: Mapping[str, Any]) -> str:
    return Code(proof_sentences.changes(changed)) if changed else ""


def at_most(expected_gain: float | None) -> str:
    """Return `at most 2.5 times` for the greatest possible speed-up. A dash if it is not known."""
    return NONE if expected_gain is None else f"at most {times(expected_gain)}"


def before_and_after(data: Record) -> Table:
    """Return a table of the medians of both sides; of one if a loop or a search has kept no change."""
    sides = {"without" if data.kind == "ab" else "before" if data.after else "as it is": data.before or {}}
    if data.after or data.kind == "ab":
        sides["with" if data.kind == "ab" else "after"] = data.after or {}
    rows = [
        [figure.head, *(figure.bare(side.get(figure.key)) for side in sides.values())]
        for figure in _FIGURES
        if any(side.get(figure.key) is not None for side in sides.values())
    ]
    return Table(["median", *sides], rows, right=(1, 2))


def scaling(data: Record) -> Table:
    """Return a table of replicas or copies; if one has failed, the last column is the outcome."""
    scaling = proof_sentences.scaling_of(data)
    speed, step, wait = (figures.of_run(key) for key in ("samples_per_second", "step_ms", "input_wait"))
    batch = "batch of each" if scaling.is_of_copies else "global batch"
    head = [scaling.unit, batch, speed.head, "speed-up", "efficiency", "spread", step.head, wait.head]
    rows = [
        [
            count(point.number),
            count(point.global_batch_size),
            speed.bare(point.samples_per_second),
            times(point.speedup).removesuffix(" times"),
            share(point.efficiency),
            spread(point.spread),
            step.bare(point.step_ms),
            wait.bare(point.input_wait),
            point.why if point.decision == "failed" else "",
        ]
        for point in scaling.points
    ]
    figures_at = range(len(head))
    if any(row[-1] for row in rows):
        head.append("outcome")
    # their zero is a speed in proportion to the replicas
    bars = Bars([point.interval for point in scaling.points], head.index("spread"), 1.0, share)
    return Table(head, [row[: len(head)] for row in rows], right=figures_at, bars=bars)


def groups(sweep: Sweep, part: str = SEARCH, brief: bool = False) -> Table:
    """Return a row for each setting of a part of a sweep, the best first: mean, spread, and each seed's value. Of the
    search, the mean of an unfinished setting is that of its last rung, and that on fresh seeds is shown as well.
    If `brief`, the names of the options stand in the head alone."""
    in_order = sweep_record.in_order(sweep.trials, sweep.settings.higher, part)
    fresh = sweep_record.groups(sweep.trials, PROOF)
    rows = []
    for group in in_order:
        mean, spread = sweep_record.mean_or_state(group)
        proved = [amount(sweep_record.mean_and_spread(fresh.get(sweep_record.key_of(group[0].changes), []))[0])]
        name = ", ".join(map(value, group[0].changes.values())) if brief else settings(group[0].changes)
        seeds = "  ".join(map(sweep_record.seed, group))
        rows.append([name or "nothing", mean, spread, *(proved if part == SEARCH else []), seeds])
    names = ", ".join(short(axis.key) for axis in sweep.settings.axes) if brief else "setting"
    drawn = {trial.seed for group in in_order for trial in group}
    each = f"seed {drawn.pop()}" if len(drawn) == 1 else "each seed"
    head = [names, sweep.settings.metric, "spread", *(["fresh seeds"] if part == SEARCH else []), each]
    bars = Bars([*map(sweep_record.interval, in_order)], len(head) - 2, sweep_record.reference(in_order), amount)
    return Table(head, rows, right=range(1, len(head) - 1), spare=(len(head) - 1,), bars=bars)


# ---- a search -------------------------------------------------------------------------------------


def _search(data: Record) -> Iterator[Chapter]:
    """The chapters about a search; of one that only predicts, its limit and the memory."""
    search = search_of(data)
    predicts, candidates, memory = proof_sentences.only_predicts(data), ranked(data), memory_of(data)
    if limits := search_results.limits_in_words(search.limits):
        yield Chapter("Limits", [limits], is_told=True)
    if candidates and not predicts:
        notes: list[Block] = []
        if any(candidate.gain is not None for candidate in candidates):
            waits = any(map(search_results.is_weighed, candidates))
            notes.append("; ".join([search_results.ABOUT_COLUMNS, *([search_results.ABOUT_WAITS] if waits else [])]))
        if any(map(search_results.is_marked, candidates)):
            notes.append(f"with {WITHOUT_INPUT}: {search_results.ABOUT_INPUT}")
        yield Chapter("Leaderboard", [search_results.leaderboard(data), *notes], is_told=True)
        options, about = search_results.options(data), search_results.ABOUT_BROUGHT
        yield Chapter("What each option brought", [options, about])
    blocks: list[Block] = []
    if words := search_results.memory_in_words(data):
        blocks.append(f"{words} ({search_results.kind_of_memory(memory)})")
    if memory.points:
        rows = [
            [
                count(point.batch_size),
                size(point.predicted_bytes),
                "out of memory" if point.peak_bytes is None else size(point.peak_bytes),
            ]
            for point in memory.points
        ]
        blocks.append(Table(["batch size", "predicted", "measured"], rows))
    if blocks:
        yield Chapter("Memory", blocks)
    facts = [*filter(None, (search_results.ceiling_in_words(data), search_results.study_in_words(data)))]
    if facts and not predicts:
        yield Chapter("The search", [facts])
    if learning := search_results.learning(data):
        yield Chapter("What is learnt", [learning])
