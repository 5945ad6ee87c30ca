"""Rules about the files and folders that options name: the user's own code, data, and folders to write to."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from .. import entry as entries
from ..files.values import NO_NAME, nameable
from ..interpreter import installed, interpreter
from ..job.machine import Machine
from ..options import OPTIONS, Options
from ..options.catalogue import nearest
from ..options.field import About
from ..options.own import remedy
from ..options.workload import TESTED_SOURCES
from ..presets import paths
from ..runs import launched_with
from . import dataset_files
from .finding import Finding, error


def _entry_alone(options: Options, _machine: Machine) -> Iterator[Finding]:
    if options.workload.entry is None:
        for name in ("args", "folder"):
            if getattr(options.workload, name):
                what = "does nothing without workload.entry"
                yield Finding("warning", (f"workload.{name}",), what, "remove it, or set workload.entry")
        return
    for info in OPTIONS:
        about: About = info.about
        if about.own == "replaced" and getattr(options.workload, info.name) != info.default:
            yield Finding(
                "error",
                (info.key, "workload.entry"),
                "your own code takes the place of gputui's model and data",
                f"remove one of the two: {info.name} or entry",
            )


def _entry(options: Options, _machine: Machine) -> Iterator[Finding]:
    workload = options.workload
    if workload.entry is None:
        return
    folder = Path(os.path.expanduser(workload.folder or "."))
    if not nameable(f"{folder.absolute()}{workload.entry}"):
        yield error("workload.folder", f"{folder} {NO_NAME}", "move your code to another folder")
        return
    if not os.path.isdir(folder):
        yield error(
            "workload.folder", f"the folder {paths.near(str(folder))} does not exist", "give an existing folder"
        )
        return
    try:
        python = installed.meant()
        newer = python.version[:2] > sys.version_info[:2]
        search_path = None if interpreter.is_own(python.python) else python.search_path
        entries.look(workload.entry, folder.absolute(), search_path, newer)
    except entries.EntryFault as fault:
        yield error("workload.entry", fault.message, fault.change)
        return
    yield from _no_effect(options)


def _no_effect(options: Options) -> Iterator[Finding]:
    """Options that did nothing in the last run of the same code."""
    found = launched_with.of_same_code(options)
    for info in OPTIONS if found else ():
        why = found.inapplicable.get(info.key) if found else None
        if why and getattr(getattr(options, info.group), info.name) != info.default:
            message = f"did nothing in the last run of this code: {why}"
            yield Finding("warning", (info.key,), message, remedy(info.key, why) or "remove it")


def own_batch(options: Options) -> int | None:
    """The global batch of the user's code, if it did not follow input.batch_size in its last run."""
    found = launched_with.of_same_code(options)
    return found.global_batch_size if found and "input.batch_size" in found.inapplicable else None


def _paths(options: Options, _machine: Machine) -> Iterator[Finding]:
    kind, place = options.workload.source if options.workload.entry is None else ("", "")
    for level, message, change in dataset_files.faults(kind, place):
        yield Finding(level, ("workload.data",), message, change)
    for key, path in {"workload.data": place, "input.cache": options.input.cache}.items():
        if not nameable(path):
            yield error(key, f"{paths.near(path)} {NO_NAME}", "give another path")
    cache = options.input.cache
    if cache not in ("off", "memory") and (what := _no_folder(cache)):
        yield error("input.cache", f"{paths.near(cache)} {what}", "give a folder, off or memory")
    elif word := _misspelt(cache):
        what = f"{paths.near(cache)} is taken as a folder, which will be made"
        yield Finding("warning", ("input.cache",), what, f"did you mean {word}?")


def _misspelt(cache: str) -> str | None:
    """The word for which the name of a cache's folder that does not exist was probably meant."""
    words = ("off", "memory")
    return None if cache in words or os.path.isdir(cache) else nearest(os.path.basename(cache), words)


def _validation(options: Options, _machine: Machine) -> Iterator[Finding]:
    workload = options.workload
    if options.train.validation == "split" or workload.entry is not None:
        return
    kind, place = workload.source
    if kind not in TESTED_SOURCES:
        yield Finding(
            "error",
            ("train.validation", "workload.data"),
            f"{kind} has no test part",
            f"set train.validation=split, or use {', '.join(TESTED_SOURCES)}",
        )
    elif kind == "npz" and (missing := _missing_test_part(place)):
        yield Finding(
            "error",
            ("train.validation", "workload.data"),
            f"{paths.near(place)} has no array {' and no array '.join(missing)}",
            "add it, or set train.validation=split",
        )


def _missing_test_part(place: str) -> list[str]:
    """The arrays that a test part needs and that are missing; none where the file cannot be read, which another rule
    reports.
    """
    try:
        there = dataset_files.arrays(place)
    except (OSError, *dataset_files.NO_ZIP):
        return []
    return [name for name in ("x_test", "y_test") if name not in there]


def _no_folder(path: str) -> str:
    """Why no folder of this name can be made, or nothing."""
    try:
        return "" if stat.S_ISDIR(os.stat(path).st_mode) else "is a file"
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as fault:
        return f"cannot be a folder: {getattr(fault, 'strerror', None) or fault}"
