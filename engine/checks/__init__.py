"""Checks options against this machine before anything starts. Each rule of RULES is one function, which yields findings
that say what to change. None starts a training or computes on a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

from ..finding import Finding, errors, worst_first
from ..interpreter import installed, interpreter
from ..job.machine_gpus import Machine
from ..options import Options
from ..plan import KIND
from ..presets import Preset, paths
from . import file_rules, gpu_checks, option_rules
from .file_rules import of_packages, of_resumed, own_batch
from .gpu_checks import by_command, for_gpus, measured_alone, of_kind, on_cpu, replicas

__all__ = [
    "RULES", "by_command", "check", "for_gpus", "measured_alone", "of_kind", "of_options", "of_packages", "of_preset",
    "of_resumed", "on_cpu", "on_screen", "own_batch", "replicas",
]  # fmt: skip


def of_preset(preset: Preset, machine: Machine) -> list[Finding]:
    """Return the findings of `check`, and a warning if much training has no checkpoint. An error about a relative path
    says if the path would exist in the current folder.
    """
    findings = [_with_remedy(finding, preset) for finding in check(preset.options, machine)]
    return [*findings, *option_rules.unkept(preset)]


def on_screen(preset: Preset, machine: Machine) -> list[Finding]:
    """A training on several machines cannot be started from a screen."""
    elsewhere = by_command(preset.options.strategy.kind)
    findings = of_preset(preset, machine)
    return [*elsewhere, *(finding for finding in findings if not elsewhere or finding.options != (KIND,))]


def _with_remedy(finding: Finding, preset: Preset) -> Finding:
    for key in finding.options if finding.level == "error" else ():
        file, line = preset.origins.get(key, ("", None))
        if line is not None and (text := paths.typed_here(key, preset.options, file)):
            remedy = f"paths are relative to {os.path.basename(file)}; for the current folder give --set {key}={text}"
            return replace(finding, remedy=remedy)
    return finding


def check(options: Options, machine: Machine) -> list[Finding]:
    """Errors first, then warnings, then notes."""
    rules = OF_COMMAND if options.workload.command else RULES
    with installed.of(interpreter.chosen(options.run.python)):
        return worst_first(finding for rule in rules for finding in rule(options, machine))


def of_options(options: Options, machine: Machine) -> list[Finding]:
    """Errors of options that contradict each other on any machine."""
    rules = (rule for rule in RULES if rule.__module__ == option_rules.__name__)
    return errors(finding for rule in rules for finding in rule(options, machine))


RULES: tuple[Callable[[Options, Machine], Iterator[Finding]], ...] = (
    file_rules.packages, file_rules.follow_targets, gpu_checks.others, gpu_checks.workers, option_rules.job_end,
    gpu_checks.none_shown, gpu_checks.missing_gpus, gpu_checks.allocation, gpu_checks.usable, gpu_checks.memory,
    gpu_checks.per_gpu, gpu_checks.without_effect, gpu_checks.precision, gpu_checks.build, gpu_checks.chip,
    gpu_checks.cudnn, gpu_checks.xla, gpu_checks.strategy, option_rules.determinism, option_rules.gradients,
    option_rules.cast, option_rules.optimizer, option_rules.scaling, option_rules.watched, file_rules.validation,
    option_rules.misfits, option_rules.steps, option_rules.rules, file_rules.entry, file_rules.data_and_cache,
)  # fmt: skip
OF_COMMAND = (file_rules.command, gpu_checks.missing_gpus, gpu_checks.allocation)
