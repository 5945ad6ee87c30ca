"""All keys of the screens, declared once: each verb with its keys, its label and its meaning. A key means the same verb
on every screen that has the verb. Verbs of a `place` (a field, a chart that fills the screen) may have keys that mean
something else elsewhere. A screen makes its bindings with `bind`; their ids are the verbs, so that the settings can
give a verb other keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from textual.app import App
from textual.binding import Binding, BindingType
from textual.keys import REPLACED_KEYS, Keys, key_to_character

from ...engine.files.values import brief
from ..upstream.textual_app import keymap_of, name_of


class Verb(NamedTuple):
    """An action that keys start. `keys` are Textual's names of its keys, separated by commas. The footer shows the
    first key."""

    id: str
    keys: str
    label: str
    meaning: str
    group: str = "Actions"
    place: str = ""  # the only part of the screens with this verb; empty: everywhere


MOVING, PLACES, ALWAYS, CHART, FIELD, FORM = "Moving", "Places", "Everywhere", "Charts", "A field", "The form"

GRAMMAR = (
    Verb("open", "enter", "Open", "open or accept what the cursor is on"),
    Verb("mark", "space", "Mark", "mark or unmark, switch on or off"),
    Verb("unmark", "M", "Unmark all", "remove all marks"),
    Verb("start", "r,ctrl+r", "Start", "start the training; run it again; check again"),
    Verb("queue", "Q", "Queue", "put the run in the queue, which starts it when its devices are free"),
    Verb("queue_up", "K", "Earlier", "move the waiting run one place up in the queue"),
    Verb("queue_down", "J", "Later", "move the waiting run one place down in the queue"),
    Verb("queue_top", "N", "Next", "make the waiting run the next in the queue"),
    Verb("hold", "H", "Hold", "hold the waiting run, so that it is not started, or release it"),
    Verb("resume", "R", "Resume", "continue from the run's last checkpoint"),
    Verb("stop", "x", "Stop", "stop the run or the proof; take a waiting run out of the queue"),
    Verb("tell", "O", "Tell", "checkpoint, evaluate, scale the learning rate, or end after this epoch"),
    Verb("delete", "d,delete", "Delete", "delete; in the form: back to the default"),
    Verb("undo", "u", "Undo", "take the last change back"),
    Verb("undo_list", "U", "Undo list", "list what can be taken back, the newest first, and choose one"),
    Verb("redo", "ctrl+y", "Redo", "make the change again that was taken back"),
    Verb("save", "s,ctrl+s", "Save", "save"),
    Verb("save_as", "S", "Save as", "save under another name"),
    Verb("file", "o", "Open file", "open a preset or a file"),
    Verb("edit", "e", "Edit", "open the options in the form; in the form: change the description"),
    Verb("editor", "E", "Editor", "open the file in $EDITOR, and read it again afterwards"),
    Verb("note", "n", "Note", "write a note about the run"),
    Verb("tags", "t", "Tags", "give the run tags"),
    Verb("name", "ctrl+n", "Name", "name the run, in titles and for commands"),
    Verb("compare", "c", "Compare", "compare runs"),
    Verb("pin", "b", "Pin baseline", "make the run the baseline of all comparisons, or no longer"),
    Verb("copy", "y", "Copy", "copy to the clipboard"),
    Verb("prove", "p", "Prove", "measure whether the remedies help; in the runs: the page of the sweep"),
    Verb("tune", "T", "Faster", "try the remedies, tune (find the fastest settings), or measure more GPUs"),
    Verb("learn", "B", "Better", "sweep over values of options, and prove which learn best"),
    Verb("why", "w", "Why", "the diagnosis: what limits the speed"),
    Verb("gpus_of_run", "v", "GPUs", "the GPUs of this run"),
    Verb("processes", "P", "Processes", "who uses the GPUs: the processes of each user"),
    Verb("log", "l", "Log", "the log"),
    Verb("messages", "m", "Messages", "only errors and warnings in the log, or all lines"),
    Verb("details", "i", "Details", "what the run was started with, and the times of its phases"),
    Verb("zoom", "z", "Charts", "the charts on the whole screen"),
    Verb("previews", "Z", "Previews", "the images, texts and counts that build's `preview` shows of each epoch"),
    Verb("deep", "D", "Deep check", "check again and import TensorFlow for it"),
    Verb("search", "slash", "Search", "search or filter"),
    Verb("wrap", "W", "Wrap", "wrap long lines of the log, or not"),
    Verb("next_match", "f", "Next", "the next match or remark"),
    Verb("previous_match", "F", "Previous", "the match or remark before"),
    Verb("sort_left", "less_than_sign", "Sort left", "sort by the column to the left"),
    Verb("sort_right", "greater_than_sign", "Sort right", "sort by the column to the right"),
    Verb("invert", "I", "Invert", "reverse the order"),
    Verb("columns", "C", "Columns", "choose the columns"),
    Verb("side_view", "V", "Side view", "show or hide the curves and figures of the run under the cursor"),
    Verb("file_view", "Y", "File view", "show or hide the preset's file, as saving writes it, next to the options"),
    Verb("apply", "a", "Apply", "put what the hint proposes into the form of the run"),
    Verb("suit", "A", "For this GPU", "precision, TF32 and XLA as they suit the GPU, as one change, with the reasons"),
    Verb("remedy", "1,2,3,4,5,6,7,8,9", "Apply", "put the remedy of this number into the form", place="Diagnosis"),
    Verb("page_back", "left_square_bracket", "Page back", "the page before: charts, help, texts", MOVING),
    Verb("page_on", "right_square_bracket", "Next page", "the next page: charts, help, texts", MOVING),
    Verb("down", "down,j", "Down", "the next row", MOVING),
    Verb("up", "up,k", "Up", "the row before", MOVING),
    Verb("first", "home,g", "First", "the first row", MOVING),
    Verb("last", "end,G", "Last", "the last row", MOVING),
    Verb("page_down", "pagedown", "Page down", "a page or a section down", MOVING),
    Verb("page_up", "pageup", "Page up", "a page or a section up", MOVING),
    Verb("back", "escape", "Back", "one step back: out of a search, a zoom, a screen", ALWAYS),
    Verb("leave", "q", "Back", "back; in the form: quit", ALWAYS),
    Verb("previous_choice", "left,h", "Previous choice", "the choice before", MOVING, FORM),
    Verb("next_choice", "right,l", "Next choice", "the next choice", MOVING, FORM),
    Verb("part", "tab", "Remarks", "to the errors and remarks, and back to the options", MOVING, FORM),
    Verb("cursor_left", "left,h", "Left", "the cursor to the left", CHART, CHART),
    Verb("cursor_right", "right,l", "Right", "the cursor to the right", CHART, CHART),
    Verb("zoom_in", "plus,equals_sign", "Closer", "a shorter part of the axis", CHART, CHART),
    Verb("zoom_out", "minus", "Further", "a longer part of the axis", CHART, CHART),
    Verb("zoom_all", "0", "All", "the whole axis", CHART, CHART),
    Verb("x_axis", "a", "Axis", "what the horizontal axis shows: steps, epochs, time or samples", CHART, CHART),
    Verb("logarithmic", "L", "Log scale", "a logarithmic vertical axis, or a linear one", CHART, CHART),
    Verb("smoothing", "i", "Smoothing", "how much the line is smoothed", CHART, CHART),
    Verb("accept", "enter", "Accept", "accept what is written", FIELD, FIELD),
    Verb("cancel", "escape", "Back", "leave without a change", FIELD, FIELD),
    Verb("field_up", "up", "Previous", "accept, and the option before", FIELD, FIELD),
    Verb("field_down", "down", "Next", "accept, and the next option", FIELD, FIELD),
    Verb("field_page_up", "pageup", "Page up", "a page up in the list below", FIELD, FIELD),
    Verb("field_page_down", "pagedown", "Page down", "a page down in the list below", FIELD, FIELD),
    Verb("complete", "tab", "Complete", "complete the path", FIELD, FIELD),
    Verb("form", "f2", "Form", "the options of the preset", PLACES),
    Verb("live", "f3", "Live", "the run that is training, or the latest one", PLACES),
    Verb("runs", "f4", "Runs", "past and present runs", PLACES),
    Verb("gpus", "f5", "GPUs", "all GPUs and the host as they are now", PLACES),
    Verb("doctor", "f6", "Doctor", "what this machine can do, and what is wrong with it", PLACES),
    Verb("settings", "comma", "Settings", "the settings: theme, charts, notices ...", ALWAYS),
    Verb("help", "question_mark,f1", "Help", "the keys that work now", ALWAYS),
    Verb("palette", "ctrl+p", "Commands", "all commands of this screen, by name", ALWAYS),
    Verb("quit", "ctrl+q", "Quit", "quit; runs go on", ALWAYS),
)
VERBS = {verb.id: verb for verb in GRAMMAR}
GROUPS = tuple(dict.fromkeys(verb.group for verb in GRAMMAR))
TAKEN = ("tab", "shift+tab", "ctrl+c")  # by Textual, for the focus and the selected text
SHORT = {"escape": "esc", "pagedown": "pgdn", "pageup": "pgup", "delete": "del"}
NAMES = frozenset(key.value for key in Keys)


def bind(
    verb: str, action: str = "", label: str = "", *, show: bool = True, meaning: str = "", without: str = ""
) -> Binding:
    """Return the binding of a verb to the method `action_...`; empty texts stand for those of the verb. `without` is a
    key of the verb that has another meaning on this screen."""
    declared = VERBS[verb]
    kept = ",".join(key for key in declared.keys.split(",") if key != without)
    tooltip = meaning or declared.meaning
    return Binding(
        kept, action or verb, label or declared.label, show=show, id=verb, tooltip=tooltip, priority=verb == "quit"
    )


def numbered(verb: str, action: str = "") -> list[BindingType]:
    """Return one binding for each digit of a verb, the action's argument. The footer shows only the key 1."""
    declared = VERBS[verb]
    return [
        Binding(key, f"{action or verb}({key})", declared.label, show=key == "1", id=verb, tooltip=declared.meaning)
        for key in declared.keys.split(",")
    ]


def back(action: str = "back") -> list[BindingType]:
    """Return the bindings of the two keys that leave a screen by `action`, of which the footer shows only the first."""
    return [bind("back", action), bind("leave", action, show=False)]


def moves(
    down: str = "cursor_down", up: str = "cursor_up", first: str = "first", last: str = "last",
    page_down: str = "page_down", page_up: str = "page_up",
) -> list[BindingType]:  # fmt: skip
    """Return the bindings of the keys that move in a list, by their actions, without labels in the footer."""
    actions = {"down": down, "up": up, "first": first, "last": last, "page_down": page_down, "page_up": page_up}
    return [bind(verb, action, show=False) for verb, action in actions.items()]


def scrolls() -> list[BindingType]:
    return moves("scroll_down", "scroll_up", "scroll_home", "scroll_end")


# ---- other keys, from the settings ----------------------------------------------------------------


def remapped(given: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the keymap for Textual (the keys by verb), and one line for each verb whose keys cannot be used. `given`
    are the keys by verb, as the settings have them."""
    changed: dict[str, tuple[str, ...]] = {}
    problems = []
    for verb, keys in given.items():
        names = tuple(dict.fromkeys(_named(key) for key in keys.split(",")))
        if reason := _wrong(verb, keys, names):
            problems.append(f"keys: {brief(verb)}: {reason}")
        else:
            changed[verb] = names
    while clash := next(_clashes(changed), None):
        verb, key, other = clash
        kept = ", ".join(shown(key) for key in VERBS[verb].keys.split(","))
        problems.append(f"keys: {verb}: {shown(key)} is the key of {other} ({VERBS[other].meaning}); {kept} stays")
        del changed[verb]
    return {verb: ",".join(keys) for verb, keys in changed.items()}, problems


def shown(key: str) -> str:
    """Return the usual name of a key, such as ctrl+r, F3 or esc."""
    *modifiers, name = key.split("+")
    letter = key_to_character(REPLACED_KEYS.get(name, name)) if len(name) > 1 else name
    word = letter if letter and letter.isprintable() and letter != " " else SHORT.get(name, name)
    return "+".join([*modifiers, word.upper() if re.fullmatch(r"f\d+", word) else word])


def key_of(app: App[Any], verb: str) -> str:
    return shown(keys_of(app, verb)[0])


def keys_of(app: App[Any], verb: str) -> list[str]:
    return keymap_of(app).get(verb, VERBS[verb].keys).split(",")


def _named(key: str) -> str:
    key = key.strip()
    if len(key) == 1:
        return name_of(key)
    *modifiers, name = key.split("+")
    return "+".join([*(modifier.lower() for modifier in modifiers), name if len(name) == 1 else name.lower()])


def can_change(verb: Verb) -> bool:
    """Return True if the user may give other keys to a verb."""
    return verb.place != FIELD and verb.id != "remedy"


def _wrong(verb: str, given: str, keys: tuple[str, ...]) -> str:
    """Return why the user cannot give these keys to a verb, `given` in the settings; empty if that is possible."""
    if verb not in VERBS:
        return "there is no such verb; docs/operations.md lists them"
    if not can_change(VERBS[verb]):
        return "these keys cannot be changed"
    for key in keys:
        *modifiers, name = key.split("+")
        exists = len(name) == 1 or name in NAMES or key_to_character(REPLACED_KEYS.get(name, name)) is not None
        modified = all(re.fullmatch("ctrl|alt|shift|super", modifier) for modifier in modifiers)
        if not key or not (key in NAMES or (exists and modified)):
            return f"{brief(given)!r} is no key; write one letter, f7, ctrl+x or a name such as pagedown"
        if key in TAKEN:
            return f"{key} moves the focus or copies the selection, and cannot be used"
    return ""


def _clashes(changed: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, str, str]]:
    for verb, keys in changed.items():
        for other in GRAMMAR:
            theirs = changed.get(other.id, tuple(_named(key) for key in other.keys.split(",")))
            if other.id != verb and other.place != FIELD:
                yield from ((verb, key, other.id) for key in keys if key in theirs)
