"""Exports a preset as a folder that trains on another machine: code, preset, plain script, versions, README. No file
in it names a path of this machine. It is made under another name and renamed when it is complete.
"""

from __future__ import annotations

import ast
import glob
import importlib.metadata
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .. import __version__
from .. import entry as entries
from ..files.writing import refuse_existing
from ..interpreter import installed, interpreter
from ..options import Notify, Options
from ..options.workload import PATH_SOURCES
from ..presets import Preset, saving
from ..presets.paths import PATTERN
from .data import DIGITS
from .data import FOLDER as DATA
from .own_code import Form
from .script import to_script

SCRIPT, README, REQUIREMENTS = "plain.py", "README.md", "requirements.txt"
MOST_DATA_BYTES = 64 * 1024**2  # larger data is not copied
OWN_DATA = "Files that the code reads, such as data, are not in this folder: put them where it looks for them."
TAKEN = {SCRIPT, README, REQUIREMENTS}


@dataclass(frozen=True)
class Exported:
    """The exported folder, and if the data was too large to be copied its source and its target in the folder."""

    folder: Path
    data: tuple[str, str] | None = None


def export(preset: Preset, target: Path, form: Form | None = None) -> Exported:
    """Write the folder `target`, new or empty. Raises ExistsError, EntryFault, SaveError or OSError."""
    refuse_existing(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".export-", dir=target.parent.resolve()))
    try:
        missing = _fill(preset, made, form)
        os.umask(mask := os.umask(0))
        made.chmod(0o777 & ~mask)
        made.rename(target)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return Exported(target, missing)


def _file(preset: Preset) -> str:
    # Runs that are started from this file are named after it.
    return re.sub(r"[^A-Za-z0-9._-]+", "-", preset.name).strip("-.") + ".yaml"


def _fill(preset: Preset, made: Path, form: Form | None) -> tuple[str, str] | None:
    """Source and target of data that was not copied. Raises EntryFault, SaveError or OSError."""
    options, modules = _with_code(preset.options, made)
    options, missing = _with_data(options, made)
    cache = options.input.cache
    if cache not in ("off", "memory"):
        options = options.with_values({"input.cache": str(made / "cache")})
    options = replace(options, run=replace(options.run, python=None), notify=Notify())
    moved = replace(preset, options=options)
    saving.save_as(moved, made / _file(preset))
    (made / SCRIPT).write_text(to_script(moved, made, form), encoding="utf-8")
    needed = _requirements(preset.options, modules)
    (made / REQUIREMENTS).write_text("".join(f"{line}\n" for line in needed), encoding="utf-8")
    (made / README).write_text(_readme(preset, missing), encoding="utf-8")
    return missing


# ---- the user's code ------------------------------------------------------------------------------


def _with_code(options: Options, made: Path) -> tuple[Options, set[str]]:
    """Options with the copied entry's place, and the names of other modules. Raises EntryFault."""
    workload = options.workload
    if workload.entry is None:
        return options, set()
    entry = entries.parse(workload.entry)
    folder = Path(os.path.abspath(os.path.expanduser(workload.folder or ".")))
    file = Path(os.path.abspath(entries.source_file(entry, folder)))
    root = folder if file.is_relative_to(folder) else file.parent
    copied, modules = _imported(file, root)
    for path in copied:
        to = made / path.relative_to(root)
        if path.relative_to(root).parts[0] in TAKEN:
            change = f"rename it: the exported folder has a {path.name} of its own"
            raise entries.EntryFault(f"{path} cannot be exported", change)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, to)
    name = entry.module if entry.module is not None else str(made / file.relative_to(root))
    moved = replace(workload, entry=f"{name}:{entry.function}", folder=str(made))
    return replace(options, workload=moved), modules


def _imported(file: Path, root: Path) -> tuple[list[Path], set[str]]:
    """The file and all below `root` that it imports, and the top-level names of other modules. Raises EntryFault."""
    reached: dict[Path, None] = {}
    others: set[str] = set()
    local: set[str] = set()  # of `from model import build`, model.build is no module, and model is not foreign
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path in reached:
            continue
        reached[path] = None
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError) as fault:
            raise entries.EntryFault(f"{path} is not valid Python: {fault}", "correct it") from None
        for module, files in entries.imports(tree, path, root):
            waiting += files
            (local if files else others).add(module.partition(".")[0])
    return list(reached), others - local


# ---- data -----------------------------------------------------------------------------------------


def _with_data(options: Options, made: Path) -> tuple[Options, tuple[str, str] | None]:
    """Copy the data if it is small. Return the options with its path, and source and target if it was not copied."""
    workload = options.workload
    kind, place = workload.source if workload.entry is None else ("", "")
    if kind == "digits":
        (made / DATA).mkdir()
        shutil.copyfile(DIGITS, made / DATA / DIGITS.name)
    if kind not in PATH_SOURCES or not place:
        return options, None
    name = os.path.basename(place.rstrip(os.sep))
    target = glob.escape(str(made / DATA)) if f"{kind}:" == PATTERN else str(made / DATA)
    moved = replace(workload, data=f"{kind}:{os.path.join(target, name)}")
    missing = None if _copied(kind, place, made / DATA / name) else (place, f"{DATA}/{name}")
    return replace(options, workload=moved), missing


def _copied(kind: str, place: str, to: Path) -> bool:
    """Copy the data, and return True, unless there are no files, they are large, or two have the same name."""
    sources = [Path(path) for path in (glob.glob(place) if f"{kind}:" == PATTERN else [place])]
    inner = [path for each in sources for path in (each.rglob("*") if each.is_dir() else [each]) if path.is_file()]
    to.parent.mkdir()
    if not inner or sum(path.stat().st_size for path in inner) > MOST_DATA_BYTES:
        return False
    if f"{kind}:" != PATTERN and sources[0].is_dir():
        shutil.copytree(sources[0], to)
        return True
    for path in inner:
        shutil.copyfile(path, to.parent / path.name)
    return len({path.name for path in inner}) == len(inner)


# ---- versions and README --------------------------------------------------------------------------


def _requirements(options: Options, modules: set[str]) -> list[str]:
    """Return the lines of requirements.txt: Python, TensorFlow, Keras, gputui, and what the user's code imports."""
    python = interpreter.chosen(options.run.python)
    with installed.of(python):
        version = ".".join(map(str, installed.intended().version))
        versions = {"tensorflow": installed.tensorflow_version(), "keras": installed.intended().keras}
    versions |= {"gputui": __version__}
    lines = [f"{name}=={number}" if number else name for name, number in versions.items()]
    others = sorted(modules - {*versions, *sys.stdlib_module_names, "__future__"})
    owners = importlib.metadata.packages_distributions() if interpreter.is_own(python) else {}
    packages = [package for module in others for package in owners.get(module, ())]
    lines += [f"{package}=={importlib.metadata.version(package)}" for package in packages]
    unknown = [module for module in others if module not in owners]
    more = [f"# Your code also imports {', '.join(unknown)}: add the packages."] if unknown else []
    return [f"# Python {version}", *dict.fromkeys(lines), *more]


def _readme(preset: Preset, missing: tuple[str, str] | None) -> str:
    title = " ".join(preset.name.split())
    described = f"\n{' '.join(preset.description.split())}\n" if preset.description else ""
    lines: Sequence[str] = (
        f"# {title}\n{described}",
        "Exported by gputui. Install what it needs, with the version of Python that requirements.txt names:\n",
        f"    pip install -r {REQUIREMENTS}\n",
        *([f"Put the data at `{missing[1]}`: it was too large to be copied.\n"] if missing else []),
        *([f"{OWN_DATA}\n"] if preset.options.workload.entry is not None else []),
        "Train it with gputui, in this folder:\n",
        f"    gputui --preset {_file(preset)}\n",
        "Or the same training in plain TensorFlow, without gputui:\n",
        f"    python {SCRIPT}\n",
    )
    return "\n".join(lines)
