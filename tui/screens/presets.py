"""The screen that opens presets: of this folder, recent, the user's own, shipped, and any by its path, which Tab
completes. Disks are read in daemon threads: of a folder that does not answer, only its part of the list is missing."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from ...engine import presets
from ...engine.files.places import PRESET_SUFFIXES
from ...engine.presets import Preset, PresetError, saving
from ...engine.presets.paths import SCRIPT
from ...engine.units import NONE
from ..base import keys
from ..base.base_app import Act
from ..base.errors import clean
from ..base.glyphs import Glyphs, glyphs_of
from ..base.themes import with_marks
from ..drawing.rows import whole_words
from ..form.form_state import INFO, shown, to_text
from ..reading import preset_files
from ..reading.preset_files import GROUPS, Group, Listing, PresetFile
from ..upstream.thread_imports import in_background
from ..widgets.key_footer import KeyFooter
from ..word_search import Hit, Place, best_first, place, search
from .base import Header
from .dialogs import UNDO_BINDINGS, Ask, UndoActions, complaining
from .saving import AskName, short

HEADS: dict[Group, str] = {
    "here": "in this folder", "recent": "recent", "yours": "yours", "shipped": "shipped with gputui", "path": "",
}  # fmt: skip
ARRIVE_SECONDS = 0.3  # the longest wait for all groups before the first list is shown
PLACEHOLDER = "type to filter, or a path; tab completes the path, or goes to the list"


class PresetList(OptionList):
    BINDINGS = [keys.bind("open", "select", meaning="open this preset in the form"), *keys.moves()]


class OpenInput(Input):
    """The field for words or a path. The arrow keys move the cursor of the list below."""

    BINDINGS = [
        keys.bind("field_down", "screen.move('cursor_down')", show=False, meaning="the next file"),
        keys.bind("field_up", "screen.move('cursor_up')", show=False, meaning="the file before"),
        keys.bind("field_page_down", "screen.move('page_down')", show=False),
        keys.bind("field_page_up", "screen.move('page_up')", show=False),
        keys.bind(
            "complete",
            "screen.complete",
            meaning="complete the path; without a path, go to the list, where a preset is duplicated or deleted",
        ),
    ]


class PresetsScreen(UndoActions):
    CSS_PATH = "presets.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]
    AUTO_FOCUS = "#open"
    PLACE = "presets"
    BINDINGS = [
        keys.bind("search", "to_field", "Filter", show=False, meaning="back to the field"),
        keys.bind("save_as", "duplicate", "Duplicate", meaning="save a copy of the preset under another name"),
        keys.bind("delete", meaning="delete this preset's file"),
        *UNDO_BINDINGS,
        *keys.back(),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.listings: dict[Group, Listing] = {}
        self.listed: list[PresetFile] = []  # in the order of the list
        self._folder: Path | None = None  # of the path that is typed
        self._previews: dict[Path, Found] = {}
        self._awaited: set[Group] = set()
        self._arrived = asyncio.Event()
        self._select: Path | None = None  # the file that gets the cursor once it is listed
        self._placed: Path | None = None  # the file that last got the cursor from the list

    def compose(self) -> ComposeResult:
        yield Header(Static("Open a preset", id="title"))
        yield OpenInput(placeholder=PLACEHOLDER, id="open", compact=True)
        with Horizontal(id="body"):
            yield PresetList(id="list", markup=False, compact=True)
            with VerticalScroll(id="preview-scroll", can_focus=False):
                yield Static(id="preview", markup=False)
        yield KeyFooter()

    async def on_mount(self) -> None:
        self._select = self.app.form_state.path
        self._read_all()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._arrived.wait(), ARRIVE_SECONDS)
        here = self.listings.get("here", Listing()).files
        self._select = next((file.path for file in here if not (file.other or file.fault)), self._select)
        self._show()

    # ---- reading in threads ---------------------------------------------------------------------

    def _read_all(self) -> None:
        self._previews.clear()
        self._awaited = set(GROUPS)
        for group in GROUPS:
            in_background(self, partial(preset_files.read, group), partial(self._listed, group))

    def _listed(self, group: Group, listing: Listing) -> None:
        self.listings[group] = listing
        self._awaited.discard(group)
        if not self._awaited:
            self._arrived.set()
        self._show()

    # ---- the list ---------------------------------------------------------------------------------

    def show_again(self) -> None:
        self.call_after_refresh(self._show)

    @property
    def typed(self) -> str:
        return self.query_one("#open", Input).value.strip()

    def _show(self) -> None:
        """Show all files that have been read. The cursor stays on its file."""
        if not self.query("#list"):
            return
        select = self._select or (self.chosen.path if self.chosen else None)
        entries = self.query_one("#list", OptionList)
        room = entries.scrollable_content_region.width
        options: list[Option] = []
        matches: list[Hit[PresetFile]] = []
        for head, hits, note in self._sections():
            if head and (hits or note):
                options.append(Option(Content.styled(head, "bold $text-primary"), disabled=True))
            width = max((len(hit.item.name) for hit in hits), default=0)
            for hit in hits:
                line = with_marks(prompt(hit.item, width, room, glyphs_of(self.app)), hit)
                options.append(
                    Option(line, id=None if hit.item.other else str(hit.item.path), disabled=bool(hit.item.other))
                )
            if note:
                options.append(Option(Content.styled(f"  {clean(note)}", "$text-warning"), disabled=True))
            matches += hits
        self.listed = [hit.item for hit in matches]
        entries.set_options(options)
        free = [hit for hit in matches if not hit.item.other]
        at = next((hit for hit in free if hit.item.path == select), min(free, key=lambda hit: hit.rank, default=None))
        entries.highlighted = entries.get_option_index(str(at.item.path)) if at is not None else None
        self._placed = self.chosen.path if self.chosen else None
        if not self._awaited:
            self._select = None
        self._preview()

    def _sections(self) -> list[tuple[str, list[Hit[PresetFile]], str]]:
        """(heading, files, note): the files of the typed path, or all that match the typed words, the best first."""
        if preset_files.is_path(self.typed):
            _, begun = preset_files.split(self.typed)
            listing = self.listings.get("path", Listing())
            files = [Hit(file) for file in listing.files if file.name.startswith(begun)]
            return [("", files, listing.note)]
        unique: dict[Path, PresetFile] = {}
        for group in GROUPS:
            for file in self.listings.get(group, Listing()).files:
                unique.setdefault(file.path, file)
        hits = best_first(search(self.typed, unique.values(), _texts))
        return [
            (
                HEADS[group],
                [hit for hit in hits if hit.item.group == group],
                "" if self.typed else self.listings.get(group, Listing()).note,
            )
            for group in GROUPS
        ]

    @property
    def chosen(self) -> PresetFile | None:
        option = self.query_one("#list", OptionList).highlighted_option
        chosen = option.id if option is not None else None
        return next((file for file in self.listed if str(file.path) == chosen), None)

    def action_move(self, action: str) -> None:
        self._select = None
        getattr(self.query_one("#list", OptionList), f"action_{action}")()

    @on(Input.Changed, "#open")
    def _typed(self) -> None:
        self._select = None
        if preset_files.is_path(self.typed):
            folder, _ = preset_files.split(self.typed)
            if folder != self._folder:
                self._folder = folder
                self.listings.pop("path", None)
                in_background(self, lambda: (folder, preset_files.read("path", folder)), self._of_path)
        self.query_one("#list", OptionList).highlighted = None
        self._show()

    def _of_path(self, read: tuple[Path, Listing]) -> None:
        if read[0] == self._folder:
            self.listings["path"] = read[1]
            self._show()

    def action_complete(self) -> None:
        """Complete the typed path or else take the file under the cursor; if it is no path, go to the list."""
        field = self.query_one("#open", Input)
        if not preset_files.is_path(self.typed):
            self.query_one("#list").focus()
            return
        names = [file.name for file in self.listed if not file.other]
        whole = preset_files.completed(self.typed, names)
        if whole == self.typed and (chosen := self.chosen):
            whole = os.path.join(os.path.split(self.typed)[0], chosen.name)
        field.value = whole
        field.cursor_position = len(whole)

    def action_to_field(self) -> None:
        self.query_one("#open").focus()

    def action_back(self) -> None:
        field = self.query_one("#open", Input)
        if field.value:
            field.value = ""
            field.focus()
        else:
            self.app.pop_screen()

    # ---- acting -----------------------------------------------------------------------------------

    @on(Input.Submitted, "#open")
    @on(OptionList.OptionSelected)
    def action_open(self) -> None:
        """Open the typed path if it is a preset, else the file or the folder under the cursor."""
        chosen, typed = self.chosen, self.typed
        if (preset_files.is_path(typed) or typed.endswith(SCRIPT)) and self.focused is self.query_one("#open"):
            folder, name = preset_files.split(typed)
            if name.endswith((*PRESET_SUFFIXES, SCRIPT)):
                self.app.open_form(folder / name)
                return
        if chosen is None:
            self.app.complain(f"there is no preset that fits {typed!r}" if typed else "there is no preset here")
        elif chosen.folder:
            self.action_complete()
        else:
            self.app.open_form(chosen.path)

    @work(exclusive=True, group="change")
    async def action_duplicate(self) -> None:
        chosen = self.chosen
        preset: Found | None = None
        if chosen is not None and not chosen.folder:  # it may not have been read for the preview so far
            preset = self._previews.get(chosen.path) or await asyncio.to_thread(_resolved, chosen.path)
        if chosen is None or not isinstance(preset, Preset):
            self.app.complain("a preset with errors cannot be duplicated")
            return
        own = presets.user_folder() if chosen.path.parent == presets.SHIPPED else chosen.path.parent
        name = await self.app.push_screen_wait(AskName(short(own / f"{chosen.path.stem}-copy.yaml")))
        if name:
            target = saving.place(name)
            self._change(lambda: saving.save_as(preset, target, chosen.path), target)

    @work(exclusive=True, group="change")
    async def action_delete(self) -> None:
        chosen = self.chosen
        if chosen is None or chosen.folder:
            return
        path = chosen.path
        if path.parent == presets.SHIPPED:
            self.app.complain(f"{path.stem} ships with gputui and cannot be deleted")
            return
        undo = self.app.key("undo")
        question = f"Delete {path}?\nUntil you quit gputui, {undo} brings it back."
        if await self.app.push_screen_wait(Ask(question, ("Delete", "Cancel"))) == "Delete":
            self._change(lambda: self._delete(path), None, f"deleted {path.stem}; {undo} in the list brings it back")

    def _delete(self, path: Path) -> None:
        deleted = saving.delete(path)
        self.did(f"deleted {path.stem}", deleted.bring_back, f"{path.stem} was restored", str(path))

    def taken_back(self, act: Act) -> None:
        self._select = Path(act.key)
        self._read_all()
        if self.app.form_state.path == self._select:  # it was written over from the form
            self.app.form_state.compare_with_file()
            self.app.show_in_form(self.app.form_state)

    def _change(self, change: Callable[[], None], select: Path | None, message: str = "") -> None:
        """Change a file by `change`, then read the list again with the cursor on `select`; show message or fault."""
        with complaining(self.app):
            change()
            if message:
                self.notify(clean(message), markup=False)
        self._select = select
        self._read_all()

    # ---- the preview ------------------------------------------------------------------------------

    @on(OptionList.OptionHighlighted)
    def _moved(self) -> None:
        # The user's file stays under the cursor when more files are listed.
        if self.chosen and self.chosen.path != self._placed:
            self._select = None
        self._preview()

    def _preview(self) -> None:
        chosen = self.chosen
        text: Content | str = ""
        if chosen is not None and not chosen.folder:
            if chosen.path in self._previews:
                text = preview(chosen.path, self._previews[chosen.path])
            else:
                in_background(self, lambda: (chosen.path, _resolved(chosen.path)), self._previewed)
        self.query_one("#preview", Static).update(text)

    def _previewed(self, read: tuple[Path, Found]) -> None:
        self._previews[read[0]] = read[1]
        self._preview()


def _resolved(path: Path) -> Found:
    try:
        return presets.resolve(str(path))
    except PresetError as fault:
        return fault


def _texts(file: PresetFile) -> tuple[Place, ...]:
    # The most important first; of a recent file its folder.
    return place(file.name), place(file.text, 1, False, "description")


Found = Preset | PresetError


def prompt(file: PresetFile, width: int, room: int, glyphs: Glyphs) -> Content:
    """Return a file's line: its name in `width` + 2 columns, then its description or fault in `room` (0: no limit)."""
    name = clean(file.name).ljust(width + 2)
    text = whole_words(clean(file.text), room - len(name) - 2, glyphs) if room else clean(file.text)
    if file.other:
        return Content.assemble(("  " + name, "$foreground-muted"), (clean(file.other), "$foreground-muted"))
    if file.fault:
        return Content.assemble(("  " + name, "bold"), (f"cannot be used: {clean(file.fault)}", "$text-error"))
    return Content.assemble(("  " + name, "bold"), text)


def preview(path: Path, preset: Found) -> Content:
    """Return a preset's name, path, description and options that differ from defaults, or its errors."""
    head = Content.assemble((clean(path.stem), "bold $text-primary"), "\n", (clean(path), "$foreground-muted"))
    if isinstance(preset, PresetError):
        wrong = "\n".join(clean(each).replace(f"{path}:{each.line}:", f"line {each.line}:") for each in preset.problems)
        return Content.assemble(head, "\n\n", ("cannot be used\n", "bold $text-error"), wrong)
    rows = [(key, shown(preset.options, INFO[key]), to_text(INFO[key].default)) for key in preset.changed()]
    names, values = (max((len(row[i]) for row in rows), default=0) + 2 for i in (0, 1))
    changed = Content("\n").join(
        Content.assemble(
            key.ljust(names),
            (clean(value or NONE).ljust(values), "bold $text-accent"),
            (f"default {default or NONE}", "$foreground-muted"),
        )
        for key, value, default in rows
    )
    note = Content("") if rows else Content("the defaults, nothing changed")
    return Content.assemble(head, f"\n\n{clean(preset.description)}\n\n", changed, note)
