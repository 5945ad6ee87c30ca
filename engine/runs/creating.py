"""Creates the folder of a new run, completely or not at all."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from ..files import private
from ..files.places import runs_folder
from ..files.values import NO_NAME, nameable
from ..files.writing import sync, write_atomically
from . import titles
from .cluster import FILE, Cluster
from .run import Run, RunError


def create(
    name: str,
    preset_yaml: str,
    origin: str = "",
    more: Mapping[str, str] | None = None,
    cluster: Cluster | None = None,
) -> Run:
    """A new run folder with its preset and the record of its origin; its id contains time and name.

    `more` are the texts of further files by their names. Of a `cluster` each worker has a run of its own; the ids of
    all but the chief's end with the worker's number.
    """
    folder = runs_folder()
    private.make(folder, exist_ok=True)
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:32] or "run"
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{slug}"
    if cluster is not None:
        more = {**(more or {}), FILE: cluster.as_file()}
        stem += "" if cluster.is_chief else f"-worker{cluster.index}"
    for number in range(1, 1000):
        try:
            return create_at(folder / (stem if number == 1 else f"{stem}-{number}"), preset_yaml, origin, more)
        except FileExistsError:
            continue
    raise RunError(f"cannot create a run folder in {folder}")


def create_at(path: Path, preset_yaml: str, origin: str = "", more: Mapping[str, str] | None = None) -> Run:
    """A run folder with its preset, readable by this user only.

    Raises OSError, or FileExistsError where something already exists; nothing is left behind then.
    """
    if not nameable(str(path)):
        raise RunError(f"{path.parent} {NO_NAME}: TensorFlow cannot write there; set GPUTUI_HOME to another folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = None
    try:
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        draft = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        texts = {"preset.yaml": preset_yaml, **(more or {}), **({titles.FILE: origin} if origin else {})}
        for name, text in texts.items():
            write_atomically(draft / name, text)
        os.rename(draft, path)
    except OSError as fault:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)
        taken = fault.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
        raise OSError(errno.EEXIST if taken else fault.errno, fault.strerror, str(path)) from None
    sync(path.parent)
    return Run(path)
