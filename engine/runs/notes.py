"""A person's own words on a run: a note and tags, in `notes.json` of its folder.

Anybody may write while the run goes on, and two viewers at once: whoever changes one entry keeps the others.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from ..files.places import home
from ..files.reading import read_object
from ..files.values import harmless, text
from ..files.writing import write_atomically
from ..system import locks
from ..system.locks import Lock
from .run import Run, RunError

FILE = "notes.json"
LOCK = "notes.lock"  # in gputui's home folder
LONGEST_NOTE, LONGEST_TAG = 1000, 32
_TAG = re.compile(rf"[^\s,#-][^\s,]{{0,{LONGEST_TAG - 1}}}")


@dataclass(frozen=True)
class Notes:
    """The tags are in the order in which they were given, each once."""

    note: str = ""
    tags: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """All of it in one line, as it is searched and listed: `#best after the fix`."""
        return " ".join((*(f"#{tag}" for tag in self.tags), *self.note.split()))


def read(run: Run) -> Notes:
    """What is written on the run; nothing where the file is damaged."""
    found = read_object(run.file(FILE)).value
    tags = found.get("tags")
    known = [tag for tag in tags if isinstance(tag, str) and _TAG.fullmatch(tag)] if isinstance(tags, list) else []
    return Notes(text(found.get("note")) or "", tuple(dict.fromkeys(known)))


def write_note(run: Run, said: str) -> Notes:
    """Write the note, an empty one removes it; raises RunError, or OSError where it cannot be written."""
    said = harmless(said).strip()
    if len(said) > LONGEST_NOTE:
        raise RunError(f"the note has {len(said):,} characters; at most {LONGEST_NOTE:,} are allowed")
    return _change(run, lambda notes: replace(notes, note=said))


def retag(run: Run, add: Iterable[str] = (), remove: Iterable[str] = ()) -> Notes:
    """Add and remove tags; raises RunError for one that cannot be a tag, or OSError where they cannot be written."""
    wanted, unwanted = tags_in(add), set(tags_in(remove))
    return _change(
        run,
        lambda notes: replace(
            notes, tags=tuple(tag for tag in dict.fromkeys((*notes.tags, *wanted)) if tag not in unwanted)
        ),
    )


def tags_in(words: Iterable[str]) -> list[str]:
    """The tags, each with or without a leading #; raises RunError for words that cannot be tags."""
    found = [word.removeprefix("#") for word in words]
    if wrong := [tag for tag in found if not _TAG.fullmatch(tag) or harmless(tag) != tag]:
        named = " and ".join(repr(tag[:LONGEST_TAG]) for tag in wrong)
        raise RunError(
            f"{named} cannot be {'tags' if len(wrong) > 1 else 'a tag'}: use at most {LONGEST_TAG} "
            "characters, without blanks, commas or a leading -"
        )
    return found


def _change(run: Run, change: Callable[[Notes], Notes]) -> Notes:
    """Read and write under a lock, so that no other viewer's change is lost."""
    with _only_writer():
        notes = change(read(run))
        content = json.dumps({"note": notes.note, "tags": notes.tags}, indent=1, ensure_ascii=False) + "\n"
        write_atomically(run.file(FILE), content)
    return notes


@contextlib.contextmanager
def _only_writer() -> Iterator[Lock]:
    try:
        lock = locks.take(home() / LOCK)
    except locks.Taken:
        raise RunError("another gputui is writing notes; try again") from None
    with lock:
        yield lock
