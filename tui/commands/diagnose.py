"""The command `gputui diagnose`: what limits the speed of a training, with evidence and remedies, and their proof.

The diagnosis of a run is based on its events, that of a preset on trials with and without its input.
"""

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
from ...engine.runs import Run, cluster, reading
from ...engine.trials import LEAST_REPEATS, TRIAL_SECONDS
from ..base.errors import Refused, clean, complain, error_text
from ..base.exit_codes import DONE
from ..printing import diagnosis as diagnosis_tables
from ..wording.run import next_step
from . import proof

OF_TRIALS = ("repeats", "seconds", "minutes", "anyway", "wait")
OF_APPLY = ("minutes", "output")


def diagnose(run: str | None, preset: str | None, settings: Sequence[str], wanted: Mapping[str, Any]) -> int:
    """The command; `wanted` are its options by name. The exit code."""
    if (run is None) == (preset is None):
        raise Refused("name a run, such as gputui diagnose latest, or give --preset")
    if run is not None and settings:
        raise Refused("--set needs --preset; a run already has its settings")
    _refuse_idle(wanted, OF_APPLY, bool(wanted["apply"]), "--apply")
    _refuse_idle(wanted, ("profile",), preset is not None, "--preset; for a run, set run.profile")
    if run is not None and not wanted["apply"]:
        _refuse_idle(wanted, OF_TRIALS, False, "--apply or --preset, which measure")
        return _show_run(run_folders.find(run), wanted["as_json"])
    asked = _of_run(run_folders.find(run), wanted) if run is not None else _of_preset(str(preset), settings, wanted)
    names = ("as_json", "anyway", "wait", "output")
    return proof.run_proof(asked, **{name: wanted[name] for name in names})


def _refuse_idle(wanted: Mapping[str, Any], names: Sequence[str], useful: bool, with_what: str) -> None:
    """An option that would do nothing is not accepted."""
    for name in names:
        if wanted[name] and not useful:
            raise Refused(f"--{name} needs {with_what}")


def _show_run(run: Run, as_json: bool) -> int:
    """Print the diagnosis that the events of the run allow."""
    told = reading.read_events(run.path)
    for damage in told.damage:
        complain(f"{run.id}: {damage}")
    found = asdict(diagnosis.of_run(run, told))
    if as_json:
        print(to_json(found | _profile(run), indent=1))
        return DONE
    diagnosis_tables.show(found)
    if run.file("profile").is_dir():
        print()
        proof.show_profile(run)
    if any(remedy["changes"] for remedy in found["remedies"]) and request.can_be_trained(run):
        print(f"\n{how_to_try(run)}")
    elif _ended_too_soon(run, found) and request.can_be_trained(run):
        print(f"\ngputui diagnose {run.id} --apply measures the same training for longer, and tries what could help")
    elif found["verdict"] == "undecided" and (error := (run.result or {}).get("error")):
        print(clean(f"\n{error_text(error)}"))
    elif following := next_step(found):
        print(f"\n{following}")
    return DONE


def _ended_too_soon(run: Run, found: Mapping[str, Any]) -> bool:
    """Whether the run, of one machine, had too few steps for a verdict."""
    unknown = found["verdict"] == "undecided" and not found["evidence"]
    return unknown and run.result is not None and run.result["outcome"] == "ok" and cluster.of_run(run) is None


def how_to_try(run: Run) -> str:
    """How the remedies of a run are tried; what is measured here by itself is one machine."""
    if cluster.of_run(run) is not None:
        return f"start all workers with one of them (--set), and compare the runs: gputui compare {run.id} NEW_RUN"
    return f"gputui diagnose {run.id} --apply measures them, and keeps what helps"


def _profile(run: Run) -> dict[str, Any]:
    """What XProf reads in the run's profile, or why it cannot; both empty without a profile."""
    if not run.file("profile").is_dir():
        return {"profile": None, "profile_missing": ""}
    try:
        return {"profile": asdict(reports.read(run)), "profile_missing": ""}
    except ProfileError as fault:
        return {"profile": None, "profile_missing": " ".join(str(fault).split())}


def _of_run(run: Run, wanted: Mapping[str, Any]) -> request.Request:
    return request.of_run(run, repeats=wanted["repeats"] or LEAST_REPEATS, **_limits(wanted))


def _of_preset(name: str, settings: Sequence[str], wanted: Mapping[str, Any]) -> request.Request:
    """With and without its input first; how often is --repeats, unless that is for the remedies."""
    limits = _limits(wanted) | {"profile": wanted["profile"]}
    if wanted["apply"]:
        repeats = wanted["repeats"] or LEAST_REPEATS
        return request.of_preset("loop", name, settings, repeats=repeats, ablation_repeats=1, **limits)
    return request.of_preset("diagnosis", name, settings, ablation_repeats=wanted["repeats"] or 1, **limits)


def _limits(wanted: Mapping[str, Any]) -> dict[str, Any]:
    minutes = wanted["minutes"]
    return {
        "measure_seconds": wanted["seconds"] or TRIAL_SECONDS,
        "limit_seconds": None if minutes is None else 60 * minutes,
    }
