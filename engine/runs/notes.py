"""A user's note and tags on a run, in `notes.json` of its folder.

They can be changed while the run is active, and by two viewers at the same time: changing one entry keeps the others.
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
    """The user's note on a run, and its tags in the order in which they were added, without duplicates."""

    note: str = ""
    tags: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """Tags and note in one line, for lists and for searching: `#best after the fix`."""
        return " ".join((*(f"#{tag}" for tag in self.tags), *self.note.split()))


def read(run: Run) -> Notes:
    """Return the note and tags of the run; empty if there are none or the file is damaged."""
    content = read_object(run.file(FILE)).value
    tags = content.get("tags")
    valid = [tag for tag in tags if isinstance(tag, str) and _TAG.fullmatch(tag)] if isinstance(tags, list) else []
    return Notes(text(content.get("note")) or "", tuple(dict.fromkeys(valid)))


def write_note(run: Run, note: str) -> Notes:
    """Replace the note of the run, and return the new notes; an empty `note` removes it.

    Raises RunError if it is too long, or OSError.
    """
    note = harmless(note).strip()
    if len(note) > LONGEST_NOTE:
        raise RunError(f"the note has {len(note):,} characters; at most {LONGEST_NOTE:,} are allowed")
    return _change(run, lambda notes: replace(notes, note=note))


def retag(run: Run, add: Iterable[str] = (), remove: Iterable[str] = ()) -> Notes:
    """Add and remove tags of the run, and return the new notes.

    Raises RunError for a text that cannot be a tag, or OSError.
    """
    added, removed = tags_in(add), set(tags_in(remove))
    return _change(
        run,
        lambda notes: replace(
            notes, tags=tuple(tag for tag in dict.fromkeys((*notes.tags, *added)) if tag not in removed)
        ),
    )


def tags_in(words: Iterable[str]) -> list[str]:
    """Return the words as tags, without the leading # that each may have. Raises RunError if a word cannot be a tag."""
    tags = [word.removeprefix("#") for word in words]
    if wrong := [tag for tag in tags if not _TAG.fullmatch(tag) or harmless(tag) != tag]:
        named = " and ".join(repr(tag[:LONGEST_TAG]) for tag in wrong)
        raise RunError(
            f"{named} cannot be {'tags' if len(wrong) > 1 else 'a tag'}: use at most {LONGEST_TAG} "
            "characters, without blanks, commas or a leading -"
        )
    return tags


def _change(run: Run, change: Callable[[Notes], Notes]) -> Notes:
    """Read the notes, apply `change`, and write them, all under a lock, so that no change by another process
    is lost.
    """
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
