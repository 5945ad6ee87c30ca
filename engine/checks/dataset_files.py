"""Looks for faults in the files of a data set without TensorFlow: missing, empty, or of the wrong kind.

This is the quick check before a launch; the data itself is read by the trainer (trainer/data/).
"""

from __future__ import annotations

import glob
import itertools
import os
import zipfile
from collections.abc import Callable, Iterator

from ..files.places import IMAGE_SUFFIXES, KERAS_FILES, keras_folder
from ..presets.paths import near
from ..units import counted

NO_ZIP = (zipfile.BadZipFile, ValueError, NotImplementedError)
LOOKED_AT = 100  # class folders that are looked into: on a network file system each one takes a request
Fault = tuple[str, str, str]  # level, what is wrong, what to do


def faults(kind: str, place: str) -> Iterator[Fault]:
    """The faults of a data source that can be found without reading the data."""
    if kind in KERAS_FILES:
        yield from _download(kind)
        return
    try:
        yield from _LOOKS.get(kind, _nothing)(place)
    except OSError as fault:
        yield "error", f"{near(place)} cannot be read: {fault.strerror or fault}", "check its owner and permissions"


def _nothing(_place: str) -> Iterator[Fault]:
    yield from ()


def _download(name: str) -> Iterator[Fault]:
    if not any(keras_folder().glob(KERAS_FILES[name][1])):
        told = (
            f"{name} is not in {keras_folder()}: Keras will download it at the start, which needs a network connection"
        )
        yield "warning", told, "run once with a network connection, or copy the files there"


def arrays(place: str) -> list[str]:
    """The names of the arrays in a .npz file; raises OSError, or one of NO_ZIP."""
    with zipfile.ZipFile(place) as file:
        return [name.removesuffix(".npy") for name in file.namelist()]


def _npz(place: str) -> Iterator[Fault]:
    if not os.path.isfile(place):
        yield "error", f"there is no file {near(place)}", "give the path of a .npz file"
        return
    try:
        names = arrays(place)
    except NO_ZIP:
        yield "error", f"{near(place)} is not a .npz file", "write it with numpy.savez(path, x=..., y=...)"
        return
    for name in ("x", "y"):
        if name not in names and f"{name}_train" not in names:
            have = ", ".join(names[:8]) or "none"
            told = f"{near(place)} has no array {name!r} or '{name}_train' (it has: {have})"
            yield "error", told, "write it with numpy.savez(path, x=..., y=...)"


def _images(place: str) -> Iterator[Fault]:
    change = "give a folder with one folder of images for each class"
    if not os.path.isdir(place):
        yield "error", f"there is no folder {near(place)}", change
        return
    with os.scandir(place) as found:
        names = sorted(one.name for one in found if one.is_dir() and not one.name.startswith("."))
    if len(names) < 2:
        yield "error", f"{near(place)} has {counted(len(names), 'class folders')}; at least 2 are needed", change
        return
    for name in names[:LOOKED_AT]:
        with os.scandir(os.path.join(place, name)) as found:
            if not any(one.name.lower().endswith(IMAGE_SUFFIXES) for one in found):
                told = f"{near(os.path.join(place, name))} contains no images ({', '.join(IMAGE_SUFFIXES)})"
                yield "error", told, "fill or remove it"
                return


def _tfrecord(place: str) -> Iterator[Fault]:
    found = glob.iglob(place)
    first = list(itertools.islice(found, 1))
    if not first:
        yield "error", f"no file matches {near(place)}", "give a path or pattern such as data/*.tfrecord"
    elif not any(os.path.getsize(file) for file in itertools.chain(first, found)):
        yield "error", f"the files that match {near(place)} are empty", "write records into them"


_LOOKS: dict[str, Callable[[str], Iterator[Fault]]] = {"npz": _npz, "images": _images, "tfrecord": _tfrecord}
