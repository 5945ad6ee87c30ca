"""The command `gputui diagnose`: what limits the speed of a training, with evidence and remedies, and their proof. The
diagnosis of a run is based on its events, that of a preset on trials with and without its input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ...engine import diagnosis
from ...engine import runs as run_folders
from ...engine.files.values import to_json
from ...engine.profile import reports
from ...engine.profile.reports import ProfileError
from ...engine.proof import request
from ...engine.runs import Run, event_reading, run_cluster
from ...engine.trials import LEAST_REPEATS, TRIAL_SECONDS
from ..base.errors import DONE, Refused, clean, complain, error_text
from ..printing import diagnosis as diagnosis_tables
from ..wording.run import next_step
from . import proof

OF_TRIALS = ("repeats", "seconds", "minutes", "anyway", "wait", "queue")
OF_APPLY = ("minutes", "output")


def diagnose(run: str | None, preset: str | None, settings: Sequence[str], options: Mapping[str, Any]) -> int:
    """Diagnose a run or a preset, and return the exit code. `options` are the command line's options by name. Exactly
    one of `run` and `preset` is given, else Refused is raised. It is also raised for options without an effect."""
    if (run is None) == (preset is None):
        raise Refused("name a run, such as gputui diagnose latest, or give --preset")
    if run is not None and settings:
        raise Refused("--set needs --preset; a run already has its settings")
    _refuse_idle(options, OF_APPLY, bool(options["apply"]), "--apply")
    _refuse_idle(options, ("profile",), preset is not None, "--preset; for a run, set run.profile")
    if run is not None and not options["apply"]:
        _refuse_idle(options, OF_TRIALS, False, "--apply or --preset, which measure")
        return _show_run(run_folders.find(run), options["as_json"])
    asked = _of_run(run_folders.find(run), options) if run is not None else _of_preset(str(preset), settings, options)
    names = ("as_json", "anyway", "wait", "output", "queue", "after")
    return proof.run_proof(asked, **{name: options[name] for name in names})


def _refuse_idle(options: Mapping[str, Any], names: Sequence[str], useful: bool, with_what: str) -> None:
    for name in names:
        if options[name] and not useful:
            raise Refused(f"--{name} needs {with_what}")


def _show_run(run: Run, as_json: bool) -> int:
    """Print the diagnosis of a run, made from its recorded events, as text or as JSON (`as_json`)."""
    events = event_reading.read_events(run.path)
    for damage in events.damage:
        complain(f"{run.name}: {damage}")
    findings = asdict(diagnosis.of_run(run, events))
    if as_json:
        print(to_json(findings | _profile(run), indent=1))
        return DONE
    diagnosis_tables.show(findings)
    if run.file("profile").is_dir():
        print()
        proof.show_profile(run)
    if any(remedy["changes"] for remedy in findings["remedies"]) and request.can_be_trained(run):
        print(f"\n{how_to_try(run)}")
    elif _ended_too_soon(run, findings) and request.can_be_trained(run):
        print(f"\ngputui diagnose {run.name} --apply measures the same training for longer, and tries what could help")
    elif findings["verdict"] == "undecided" and (error := (run.result or {}).get("error")):
        print(clean(f"\n{error_text(error)}"))
    elif following := next_step(findings):
        print(f"\n{following}")
    return DONE


def _ended_too_soon(run: Run, findings: Mapping[str, Any]) -> bool:
    unknown = findings["verdict"] == "undecided" and not findings["evidence"]
    return unknown and run.result is not None and run.result["outcome"] == "ok" and run_cluster.of_run(run) is None


def how_to_try(run: Run) -> str:
    """Say how a run's remedies can be tried: by a command or, on several machines, by hand."""
    if run_cluster.of_run(run) is not None:
        return f"start all workers with one of them (--set), and compare the runs: gputui compare {run.name} NEW_RUN"
    return f"gputui diagnose {run.name} --apply measures them, and keeps what helps"


def _profile(run: Run) -> dict[str, Any]:
    if not run.file("profile").is_dir():
        return {"profile": None, "profile_missing": ""}
    try:
        return {"profile": asdict(reports.read(run)), "profile_missing": ""}
    except ProfileError as fault:
        return {"profile": None, "profile_missing": " ".join(str(fault).split())}


def _of_run(run: Run, options: Mapping[str, Any]) -> request.Request:
    return request.of_run(run, repeats=options["repeats"] or LEAST_REPEATS, **_limits(options))


def _of_preset(name: str, settings: Sequence[str], options: Mapping[str, Any]) -> request.Request:
    limits = _limits(options) | {"profile": options["profile"]}
    if options["apply"]:
        repeats = options["repeats"] or LEAST_REPEATS
        return request.of_preset("loop", name, settings, repeats=repeats, ablation_repeats=1, **limits)
    return request.of_preset("diagnosis", name, settings, ablation_repeats=options["repeats"] or 1, **limits)


def _limits(options: Mapping[str, Any]) -> dict[str, Any]:
    minutes = options["minutes"]
    return {
        "measure_seconds": options["seconds"] or TRIAL_SECONDS,
        "limit_seconds": None if minutes is None else 60 * minutes,
    }
