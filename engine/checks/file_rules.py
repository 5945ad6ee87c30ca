"""Rules about the user's own code and what cannot be set next to it, about data sets, and about folders to write to.
Faults of data sets are found without TensorFlow, by their files; the trainer reads the data (trainer/data/).
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import os
import shutil
import stat
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from .. import entry as entries
from ..files.places import IMAGE_SUFFIXES, KERAS_FILES, keras_folder
from ..files.values import NO_NAME, nameable
from ..finding import Finding, error, errors, note, warning
from ..interpreter import installed, interpreter, supported_versions
from ..interpreter.interpreter import Unusable
from ..job.machine_gpus import Machine
from ..options import OPTIONS, PRIVATE, Options
from ..options.catalogue import About, nearest
from ..options.own_code import OF_COMMAND, remedy
from ..options.training import TESTED
from ..options.workload import TESTED_SOURCES
from ..presets import paths
from ..presets.paths import near
from ..runs import launched_with
from ..units import counted


def entry(options: Options, _machine: Machine) -> Iterator[Finding]:
    """What the code takes the place of, what needs it, and whether it can be imported."""
    workload, copies = options.workload, options.run.code == "copy"
    if workload.entry is None:
        alone = {"workload.args": bool(workload.args), "workload.folder": bool(workload.folder), "run.code": copies}
        for key in [key for key, is_set in alone.items() if is_set]:
            what = f"{'copy ' * (key == 'run.code')}does nothing without workload.entry"
            yield warning(key, what, "remove it, or set workload.entry")
        return
    for info in OPTIONS:
        about: About = info.about
        if about.own == "replaced" and getattr(workload, info.name) != info.default:
            yield error((info.key, "workload.entry"), "your own code takes the place of gputui's model and data",
                        f"remove one of the two: {info.name} or entry")  # fmt: skip
    if copies and entries.parse(workload.entry).file is None:
        what = "the code of a module is not copied: the run trains the module as it is"
        yield warning(("run.code", "workload.entry"), what, "name a file in workload.entry, such as train.py:build")
    folder = Path(os.path.expanduser(workload.folder or "."))
    if not nameable(f"{folder.absolute()}{workload.entry}"):
        yield error("workload.folder", f"{folder} {NO_NAME}", "move your code to another folder")
        return
    if not os.path.isdir(folder):
        what = f"the folder {paths.near(str(folder))} does not exist"
        yield error("workload.folder", what, "give an existing folder")
        return
    try:
        python = installed.intended()
        newer = python.version[:2] > sys.version_info[:2]
        search_path = None if interpreter.is_own(python.python) else python.search_path
        entries.examine(workload.entry, folder.absolute(), search_path, newer)
    except entries.EntryFault as fault:
        yield error("workload.entry", fault.message, fault.change)
        return
    earlier = launched_with.of_same_code(options)
    for info in OPTIONS if earlier else ():
        why = earlier.inapplicable.get(info.key) if earlier else None
        if why and options.value(info.key) != info.default:
            message = f"did nothing in the last run of this code: {why}"
            yield warning((info.key,), message, remedy(info.key, why) or "remove it")


def command(options: Options, _machine: Machine) -> Iterator[Finding]:
    """Options that a command does not obey, and a program or folder that is missing."""
    key, workload = "workload.command", options.workload
    program, folder = workload.command[0], os.path.expanduser(workload.folder or ".")
    for info in OPTIONS:
        if info.key not in OF_COMMAND and info.group not in PRIVATE and options.value(info.key) != info.default:
            yield error((info.key, key), "a command does not obey this option", f"remove {info.key}")
    if options.device.choice is not None and options.device.choice.shared:
        yield error(("device.visible", key), "the memory that a command needs is not known", "ask for free:1@24GB")
    if not os.path.isdir(folder):
        yield error("workload.folder", f"the folder {near(folder)} does not exist", "give an existing folder")
    elif shutil.which(os.path.join(folder, program) if os.sep in program else program) is None:
        yield error(key, f"there is no program {program}", "give the path of a program, or a name that PATH has")


def own_batch(options: Options) -> int | None:
    """The global batch size of the user's code in its last run, if the code did not use input.batch_size."""
    earlier = launched_with.of_same_code(options)
    return earlier.global_batch_size if earlier and "input.batch_size" in earlier.inapplicable else None


def data_and_cache(options: Options, _machine: Machine) -> Iterator[Finding]:
    kind, place = options.workload.source if options.workload.entry is None else ("", "")
    yield from dataset_faults(kind, place)
    for key, path in {"workload.data": place, "input.cache": options.input.cache}.items():
        if not nameable(path):
            yield error(key, f"{paths.near(path)} {NO_NAME}", "give another path")
    cache, what = options.input.cache, ""
    if cache in WORDS:
        return
    try:
        what = "" if stat.S_ISDIR(os.stat(cache).st_mode) else "is a file"
    except FileNotFoundError:
        if word := nearest(os.path.basename(cache).lower(), WORDS):
            taken = f"{paths.near(cache)} is taken as a folder, which will be made"
            yield warning("input.cache", taken, f"did you mean {word}?")
    except (OSError, ValueError) as fault:
        what = f"cannot be a folder: {getattr(fault, 'strerror', None) or fault}"
    if what:
        yield error("input.cache", f"{paths.near(cache)} {what}", "give a folder, off or memory")


def validation(options: Options, _machine: Machine) -> Iterator[Finding]:
    key, instead = ("train.validation", "split") if options.train.validation == "test" else (TESTED, "auto")
    workload, keys, missing = options.workload, (key, "workload.data"), list[str]()
    kind, place = workload.source
    if workload.is_script and options.train.evaluate_at_end is True:
        what = "a script evaluates its test data itself: the last evaluate after its fit gives the run's test figures"
        yield error(TESTED, what, f"set {TESTED}=auto")
    if not options.train.reads_test or workload.entry is not None:
        return
    if options.train.validation == "test" and options.train.evaluate_at_end is True:
        what = "the test data are the validation already, by which the best epoch is chosen"
        yield error((TESTED, "train.validation"), what, f"set train.validation=split, or {TESTED}=auto")
    if kind not in TESTED_SOURCES:
        change = f"set {key}={instead}, or use {', '.join(TESTED_SOURCES)}"
        yield error(keys, f"{kind} has no test part", change)
    elif kind == "npz":
        with contextlib.suppress(OSError, *NO_ZIP):  # which another rule reports
            there = arrays_of_npz(place)
            missing = [name for name in ("x_test", "y_test") if name not in there]
    if missing:
        what = f"{paths.near(place)} has no array {' and no array '.join(missing)}"
        yield error(keys, what, f"add it, or set {key}={instead}")


# ---- files of data sets --------------------------------------------------------------------------


NO_ZIP = (zipfile.BadZipFile, ValueError, NotImplementedError)
WORDS = ("off", "memory")  # of input.cache; another value is a folder
LOOKED_AT = 100  # class folders that are looked into: on a network file system each one takes a request
_DATA = "workload.data"


def dataset_faults(kind: str, place: str) -> Iterator[Finding]:
    """Those that are seen without reading the data; `kind` and `place` are parts of workload.data."""
    try:
        if kind in KERAS_FILES and not any(keras_folder().glob(KERAS_FILES[kind][1])):
            needs = "Keras will download it at the start, which needs a network connection"
            remedy = "run once with a network connection, or copy the files there"
            yield warning(_DATA, f"{kind} is not in {keras_folder()}: {needs}", remedy)
        elif kind == "npz":
            yield from _npz(place)
        elif kind == "images":
            yield from _images(place)
        elif kind == "tfrecord":
            matching = glob.iglob(place)
            first = list(itertools.islice(matching, 1))
            if not first:
                yield error(_DATA, f"no file matches {near(place)}", "give a path or pattern such as data/*.tfrecord")
            elif not any(os.path.getsize(file) for file in itertools.chain(first, matching)):
                yield error(_DATA, f"the files that match {near(place)} are empty", "write records into them")
    except OSError as fault:
        what = f"{near(place)} cannot be read: {fault.strerror or fault}"
        yield error(_DATA, what, "check its owner and permissions")


def arrays_of_npz(place: str) -> list[str]:
    """The names of its arrays. Raises OSError, or one of NO_ZIP for no valid .npz file."""
    with zipfile.ZipFile(place) as file:
        return [name.removesuffix(".npy") for name in file.namelist()]


def _npz(place: str) -> Iterator[Finding]:
    if not os.path.isfile(place):
        yield error(_DATA, f"there is no file {near(place)}", "give the path of a .npz file")
        return
    try:
        names = arrays_of_npz(place)
    except NO_ZIP:
        yield error(_DATA, f"{near(place)} is not a .npz file", "write it with numpy.savez(path, x=..., y=...)")
        return
    for name in ("x", "y"):
        if name not in names and f"{name}_train" not in names:
            have = ", ".join(names[:8]) or "none"
            what = f"{near(place)} has no array {name!r} or '{name}_train' (it has: {have})"
            yield error(_DATA, what, "write it with numpy.savez(path, x=..., y=...)")


def _images(place: str) -> Iterator[Finding]:
    change = "give a folder with one folder of images for each class"
    if not os.path.isdir(place):
        yield error(_DATA, f"there is no folder {near(place)}", change)
        return
    with os.scandir(place) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    if len(names) < 2:
        yield error(_DATA, f"{near(place)} has {counted(len(names), 'class folders')}; at least 2 are needed", change)
        return
    for name in names[:LOOKED_AT]:
        with os.scandir(os.path.join(place, name)) as entries:
            if not any(entry.name.lower().endswith(IMAGE_SUFFIXES) for entry in entries):
                what = f"{near(os.path.join(place, name))} contains no images ({', '.join(IMAGE_SUFFIXES)})"
                yield error(_DATA, what, "fill or remove it")
                return


KEY = "run.python"
_OR_ANOTHER = "set {} to the Python of an environment that has it, or {}"
_WAYS = f"{KEY} (or {interpreter.VARIABLE})"  # to name one


def of_packages(option: str | None) -> list[Finding]:
    """About the Python that trains (run.python is `option`) and its packages; none if gputui's own Python fits."""
    python = interpreter.chosen(option)
    own = interpreter.is_own(python)
    keys = () if own else (KEY,)
    try:
        described = interpreter.require(python)
    except Unusable as fault:
        by = f" ({interpreter.VARIABLE})" if option is None and interpreter.from_environment() else ""
        return [error(keys, f"{fault}{by}", fault.change)]
    if described.place is None:
        change = _OR_ANOTHER.format(_WAYS, described.install(supported_versions.TENSORFLOW))
        return [error(keys, "TensorFlow is not installed", change)]
    path = f"{described.python}: " if keys else ""
    versions = supported_versions.findings(described.tensorflow, described.keras, described.install)
    findings = [replace(finding, what=f"{path}{finding.what}", options=keys) for finding in versions]
    if own or errors(findings):
        return findings
    named_by = f"{interpreter.VARIABLE} names it" if option is None else "the preset or --set names it"
    return [*findings, note(KEY, f"trains in {described}", named_by)]


def of_resumed(python: str, preset_file: str) -> list[Finding]:
    """Return the findings for a run that is resumed in the Python of its own preset: remedies name `preset_file`."""
    where = f"{KEY} in {preset_file}"
    remedies = {"note": "the run's preset names it", "error": f"change {where}"}  # if the finding is about the option
    findings = ((finding, remedies.get(finding.level if finding.options else "")) for finding in of_packages(python))
    return [replace(each, remedy=remedy or each.remedy.replace(_WAYS, where)) for each, remedy in findings]


def packages(options: Options, _machine: Machine) -> Iterator[Finding]:
    yield from of_packages(options.run.python)


def follow_targets(options: Options, _machine: Machine) -> Iterator[Finding]:
    if not options.run.follow:
        return
    from ..follow import following  # not for the first paint of the form

    for name in options.run.follow:
        if line := following.missing([name]):
            what, _, change = line[0].partition("; ")
            yield error("run.follow", what, change)
