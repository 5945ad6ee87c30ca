"""Disks that take nothing more: a small file system in memory where mounting is allowed, a limit of sizes elsewhere."""

from __future__ import annotations

import os
import resource
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.needs import lacks

SIZE_BYTES, INODES = 8 << 20, 400


@contextmanager
def no_writing(*pids: int, most_bytes: int = 0) -> Iterator[None]:
    """These processes, or this one, cannot write beyond a size: EFBIG at the places where a full disk has ENOSPC."""
    before = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pids or (os.getpid(),)}
    for pid, (_, most) in before.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most_bytes, most))
    try:
        yield
    finally:
        for pid, limits in before.items():
            with suppress(ProcessLookupError):  # it has ended
                resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


class SmallDisk:
    """A file system of a few megabytes that can be filled and freed.

    It stays full: what a process frees, such as an older checkpoint that it removes, is taken up at once.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def full(self) -> Iterator[None]:
        """Not one more byte."""
        filler = self.path / "filler"
        with filler.open("wb", buffering=0) as stream:

            def fill() -> None:
                for size in (1 << 16, 1 << 12, 1):
                    with suppress(OSError):
                        while stream.write(bytes(size)) == size:
                            pass

            try:
                with _kept_up(fill):
                    yield
            finally:
                filler.unlink()

    @contextmanager
    def without_inodes(self) -> Iterator[None]:
        """Not one more file, though there is room for bytes."""
        made: list[Path] = []

        def fill() -> None:
            with suppress(OSError):
                while True:
                    path = self.path / f"filler{len(made)}"
                    path.touch()
                    made.append(path)

        try:
            with _kept_up(fill):
                yield
        finally:
            for path in made:
                path.unlink()


@contextmanager
def _kept_up(fill: Callable[[], None]) -> Iterator[None]:
    """Fill before and all the while."""
    over = threading.Event()

    def again() -> None:
        while not over.wait(0.05):
            fill()

    fill()
    filling = threading.Thread(target=again)
    filling.start()
    try:
        yield
    finally:
        over.set()
        filling.join()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Mounted for one test; needs root that may mount."""
    path = tmp_path / "disk"
    path.mkdir()
    options = f"size={SIZE_BYTES},nr_inodes={INODES},mode=700"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "none", path], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        lacks("mount", mounted.stderr.strip())
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)
