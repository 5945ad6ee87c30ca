"""The title of a run (its preset and the changed options, such as `fast: batch_size=256 xla`), which stays if the
preset is changed later (`origin.json`), and the user's note and tags (`notes.json`).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..files import run_numbers, typed
from ..files.places import home
from ..files.values import harmless
from ..files.writing import write_atomically
from ..system import locks
from ..units import counted
from . import run_cluster
from .run import Run, RunError

FILE = run_numbers.ORIGIN
COMMAND = "workload.command"
NO_EFFECT = "no_effect"  # of a change: the reason why it has no effect; no title names it then
_PYTHON = re.compile(r"(/[^/]+/[^/]+)/bin/python[\d.]*$")
LONGEST = 72  # width of a title if the caller names none
_LONGEST_VALUE = 32
_LEAST_OF_A_CHANGE = 9


@dataclass(frozen=True)
class Origin:
    """The content of `origin.json`: the name of the preset, its file, and for each changed option, by `group.name`, its
    values `from` the preset and `to` that of the run, perhaps with NO_EFFECT. `name` is the run's, if it has one.
    """

    preset: str = ""
    file: str = ""
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    name: str = ""

    def as_file(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"


@dataclass(frozen=True)
class Title:
    """The title of a run: its own name or that of the preset, and one text for each changed option."""

    preset: str
    changes: tuple[str, ...] = ()

    @property
    def whole(self) -> str:
        """The title with all changes, of any length."""
        return f"{self.preset}: {' '.join(self.changes)}" if self.changes else self.preset

    def within(self, width: int) -> str:
        """The title with as many changes as fit, and the number of the others: `fast: batch_size=256 +3 more`. The
        first change is cut, or left out; the preset's name is never cut.
        """
        if changes := self.changes_within(width - len(self.preset) - 2):
            return f"{self.preset}: {changes}"
        more = f" +{len(self.changes) - 1} more" if len(self.changes) > 1 else ""
        room = width - len(self.preset) - 2 - len(more)
        if self.changes and room > _LEAST_OF_A_CHANGE:
            return f"{self.preset}: {self.changes[0][: room - 2]}..{more}"
        return f"{self.preset}: {counted(len(self.changes), 'changes')}" if self.changes else self.preset

    def changes_within(self, width: int) -> str:
        """As many changes as fit, and the number of the others; empty if not even the first fits."""
        for shown in range(len(self.changes), 0, -1):
            rest = len(self.changes) - shown
            words = " ".join((*self.changes[:shown], *([f"+{rest} more"] if rest else [])))
            if len(words) <= width:
                return words
        return ""

    def __str__(self) -> str:
        return self.within(LONGEST)


def title(run: Run) -> str:
    """Return the title of a run as text of at most about 72 characters."""
    return str(title_of(run))


def title_of(run: Run) -> Title:
    """A run of an older gputui, without a record of its origin, has only the preset's name."""
    title = recorded(typed.read_usable(run.file(FILE), Origin), name_of(run))
    if (joined := run_cluster.of_run(run)) is None:
        return title
    workers = len(joined.workers)
    place = counted(workers, "workers") if joined.is_chief else f"worker {joined.index} of {workers}"
    return replace(title, changes=(*title.changes, place))


def with_name(run: Run) -> str:
    """Such as `r42 fast: batch_size=256`; without a number the title alone."""
    return title(run) if run.number is None else f"{run.name} {title(run)}"


def recorded(origin: Origin, default: str) -> Title:
    """Return the title from the record of an origin; `default` is the name of the preset if the record has none."""
    applied = {key: change for key, change in origin.changes.items() if not change.get(NO_EFFECT)}
    words = (_words(key, change.get("to")) for key, change in applied.items())
    return Title(origin.name or origin.preset or default, tuple(words))


def preset_of(run: Run) -> str:
    """Return the name of the preset from which a run was started."""
    return typed.read_usable(run.file(FILE), Origin).preset or name_of(run)


def name_of(run: Run) -> str:
    """Return the name of the preset according to the run's id: the part between the time and the numbers at the end."""
    return re.sub(r"^\d{8}-\d{6}-|(-worker\d+)?(-\d{1,3})?$", "", run.id) or "run"


def _words(key: str, value: Any) -> str:
    # `xla` or `no xla` for a switch, else such as `batch_size=256`; the words of a command.
    if key == COMMAND:
        return " ".join(harmless(shlex.join(map(str, value))).split()) if isinstance(value, list) else ""
    name = key.rpartition(".")[2]
    if value is True:
        return name
    if value is False or value is None:
        return f"no {name}"
    return f"{name}={_brief(value)}"


def _brief(value: Any) -> str:
    """One word of at most 32 characters: of a path the last part, of an interpreter its environment."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    word = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    word = _PYTHON.sub(r"\1", word)
    kind, _, place = word.rpartition("/")
    if kind and isinstance(value, str):  # not a slash within a mapping
        source = re.match(r"\w+:(?!//)", word)  # csv:/data/train.csv
        word = (source[0] if source else "") + place
    word = "_".join(harmless(word).split())
    return word if len(word) <= _LONGEST_VALUE else f"{word[: _LONGEST_VALUE - 2]}.."


def add_change(run: Run, key: str, before: Any, after: Any) -> None:
    """Put an option that was changed after the launch first among the changes in the run's title. `before` and `after`
    are its values. A run without a record of its origin is not changed. Raises OSError if the record cannot be written.
    """
    origin = typed.read(run.file(FILE), Origin).value
    if origin is None:
        return
    change = {key: {"from": origin.changes.get(key, {}).get("from", before), "to": after}}
    others = {other: details for other, details in origin.changes.items() if other != key}
    write_atomically(run.file(FILE), replace(origin, changes=change | others).as_file())


def leave_out(run: Run, unapplied: Mapping[str, str]) -> None:
    """Record in origin.json which changed options have no effect, with the reasons by key, in place of earlier ones;
    the title does not name them. Raises OSError.
    """
    origin = typed.read_usable(run.file(FILE), Origin)
    changes = {
        key: {name: value for name, value in change.items() if name != NO_EFFECT}
        | ({NO_EFFECT: unapplied[key]} if key in unapplied else {})
        for key, change in origin.changes.items()
    }
    if changes != origin.changes:
        write_atomically(run.file(FILE), replace(origin, changes=changes).as_file())


def record(preset: str, file: str, changes: Mapping[str, tuple[Any, Any]], name: str = "") -> str:
    """Return the content of `origin.json`; `changes` has for each option its values in the preset and in the run."""
    return Origin(preset, file, {key: {"from": old, "to": new} for key, (old, new) in changes.items()}, name).as_file()


def own_name(run: Run) -> str:
    """Return the name that the user has given the run; empty if there is none."""
    return typed.read_usable(run.file(FILE), Origin).name


def rename(run: Run, name: str) -> None:
    """Give a run a name in place of its preset's, or take it away if `name` is empty. Raises RunError and OSError."""
    origin = typed.read_usable(run.file(FILE), Origin)
    write_atomically(run.file(FILE), replace(origin, name=name_in(name)).as_file())


def name_in(text: str) -> str:
    """Return the text as the name of a run. Raises RunError if it cannot be one."""
    if text and (not _TAG.fullmatch(text) or harmless(text) != text or text == "latest" or _SHORT.fullmatch(text)):
        raise RunError(
            f"{text!r} cannot be the name of a run: use at most {LONGEST_TAG} characters, without blanks or commas, "
            "and no short name such as r42"
        )
    return text


# ---- note and tags --------------------------------------------------------------------------------


NOTES_FILE = "notes.json"
NOTES_LOCK = "notes.lock"  # in gputui's home folder
LONGEST_NOTE, LONGEST_TAG = 1000, 32
_SHORT = re.compile(r"[rR]\d+")
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


@dataclass(frozen=True)
class _NotesFile:
    note: str = ""
    tags: Sequence[Any] = ()


def read_notes(run: Run) -> Notes:
    """Return the note and tags of the run; empty if there are none or the file is damaged."""
    notes = typed.read_usable(run.file(NOTES_FILE), _NotesFile)
    valid = [tag for tag in notes.tags if isinstance(tag, str) and _TAG.fullmatch(tag)]
    return Notes(notes.note, tuple(dict.fromkeys(valid)))


def write_note(run: Run, note: str) -> Notes:
    """An empty one removes it; returns the new notes. RunError over 1,000 characters or if locked, or OSError."""
    note = harmless(note).strip()
    if len(note) > LONGEST_NOTE:
        raise RunError(f"the note has {len(note):,} characters; at most {LONGEST_NOTE:,} are allowed")
    return _change(run, lambda notes: replace(notes, note=note))


def restore(run: Run, former: Notes, changed: Notes) -> Notes:
    """Undo the change of the run's notes from `former` to `changed`, and return the new notes. What only one of note
    and tags has changed leaves the other as it is now. Errors are those of `write_note`.
    """
    return _change(
        run,
        lambda notes: Notes(
            former.note if former.note != changed.note else notes.note,
            former.tags if former.tags != changed.tags else notes.tags,
        ),
    )


def retag(run: Run, add: Iterable[str] = (), remove: Iterable[str] = ()) -> Notes:
    """Add and remove tags of the run, and return the new notes. A tag that is both in `add` and in `remove` is removed.
    Raises RunError for a text that cannot be a tag, or if another process is writing notes, or OSError.
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
    # Under a lock, so that no change by another process is lost. RunError if it is taken, or OSError.
    try:
        lock = locks.take(home() / NOTES_LOCK)
    except locks.Taken:
        raise RunError("another gputui is writing notes; try again") from None
    with lock:
        notes = change(read_notes(run))
        content = json.dumps({"note": notes.note, "tags": notes.tags}, indent=1, ensure_ascii=False) + "\n"
        write_atomically(run.file(NOTES_FILE), content)
    return notes
