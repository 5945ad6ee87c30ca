"""Shipped presets and the user's own: look, open, duplicate, delete."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from ...engine import presets
from ...engine.presets import Preset, PresetError, saving
from ...engine.presets.saving import SaveError
from ..base.errors import clean
from ..form.state import INFO, shown, to_text
from ..widgets.key_footer import KeyFooter
from .questions import Ask
from .saving import AskName

if TYPE_CHECKING:
    from ..base.services import Host

Found = Preset | PresetError
WHOSE = ("shipped", "yours", "here")


class PresetList(OptionList):
    """A list whose footer says what Enter does."""

    BINDINGS = [Binding("enter", "select", "Open")]


class PresetsScreen(Screen[None]):
    """The list, and beside it what the highlighted preset changes of the defaults."""

    CSS_PATH = "presets.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]
    app: Host
    BINDINGS = [
        Binding("d", "duplicate", "Duplicate"),
        Binding("delete,x", "delete", "Delete", key_display="x"),
        Binding("escape,q", "app.pop_screen", "Back", key_display="esc"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[Path, Found]] = []

    def compose(self) -> ComposeResult:
        yield Static("Presets", id="title")
        with Horizontal(id="body"):
            yield PresetList(id="list", markup=False, compact=True)
            with VerticalScroll(id="preview-scroll", can_focus=False):
                yield Static(id="preview", markup=False)
        yield KeyFooter()

    def on_mount(self) -> None:
        self.query_one("#list").focus()
        self._read()

    @work(thread=True, exclusive=True)
    def _read(self, select: str = "") -> None:
        """Shipped presets first, then the user's own and those of the current folder, by name."""
        found: list[tuple[Path, Found]] = []
        for path in (*presets.available().values(), *presets.in_current_folder()):
            try:
                found.append((path, presets.resolve(str(path))))
            except PresetError as fault:
                found.append((path, fault))
        found.sort(key=lambda item: (WHOSE.index(_whose(item[0])), item[0].stem))
        self.app.call_from_thread(self._show, found, select)

    def _show(self, found: list[tuple[Path, Found]], select: str) -> None:
        self.found = found
        names = max((len(path.stem) for path, _ in found), default=0)
        entries = self.query_one("#list", OptionList)
        entries.set_options([Option(_prompt(path, preset, names)) for path, preset in found])
        wanted = [i for i, (path, _) in enumerate(found) if path.stem == (select or self.app.form_state.name)]
        entries.highlighted = wanted[0] if wanted else 0

    def _chosen(self) -> tuple[Path, Found] | None:
        at = self.query_one("#list", OptionList).highlighted
        return self.found[at] if at is not None and at < len(self.found) else None

    @on(OptionList.OptionHighlighted)
    def _preview(self) -> None:
        chosen = self._chosen()
        self.query_one("#preview", Static).update(_preview_of(*chosen) if chosen else "")

    @on(OptionList.OptionSelected)
    def action_open(self) -> None:
        chosen = self._chosen()
        if chosen:
            self.app.open_form(chosen[0])

    @work(exclusive=True, group="change")
    async def action_duplicate(self) -> None:
        chosen = self._chosen()
        if chosen is None or isinstance(chosen[1], PresetError):
            self.app.complain("a preset with errors cannot be duplicated")
            return
        name = await self.app.push_screen_wait(AskName(f"{chosen[0].stem}-copy"))
        if name:
            self._change(lambda: saving.save_as(chosen[1], saving.place(name), chosen[0]), Path(name).stem)

    @work(exclusive=True, group="change")
    async def action_delete(self) -> None:
        chosen = self._chosen()
        if chosen is None:
            return
        path = chosen[0]
        if path.parent == presets.SHIPPED:
            self.app.complain(f"{path.stem} ships with gputui and cannot be deleted")
        elif await self.app.push_screen_wait(Ask(f"Delete {path}?", ("Delete", "Cancel"))) == "Delete":
            self._change(lambda: saving.delete(path), "")

    def _change(self, change: object, select: str) -> None:
        assert callable(change)
        try:
            change()
        except SaveError as fault:
            self.app.complain(str(fault))
        self._read(select)


def _whose(path: Path) -> str:
    folders = {presets.SHIPPED: "shipped", presets.user_folder(): "yours"}
    return folders.get(path.parent, "here")


def _prompt(path: Path, preset: Found, names: int) -> Content:
    whose = _whose(path)
    text = preset.description if isinstance(preset, Preset) else "cannot be used"
    return Content.assemble(
        (clean(path.stem).ljust(names + 2), "bold"), whose.ljust(9), clean(text)
    )


def _preview_of(path: Path, preset: Found) -> Content:
    """The file, the description, and what differs from the defaults."""
    head = Content.assemble((clean(path.stem), "bold $text-primary"), "\n", (clean(path), "$foreground-muted"))
    if isinstance(preset, PresetError):
        wrong = "\n".join(clean(problem) for problem in preset.problems)
        return Content.assemble(head, "\n\n", ("cannot be used\n", "bold $text-error"), wrong)
    rows = [(key, shown(preset.options, INFO[key]), to_text(INFO[key].default)) for key in preset.changed()]
    names, values = (max((len(row[i]) for row in rows), default=0) + 2 for i in (0, 1))
    changed = Content("\n").join(
        Content.assemble(
            key.ljust(names),
            (clean(value or "not given").ljust(values), "bold $text-accent"),
            (f"default {default or 'not given'}", "$foreground-muted"),
        )
        for key, value, default in rows
    )
    note = Content("") if rows else Content("the defaults, nothing changed")
    return Content.assemble(head, f"\n\n{clean(preset.description)}\n\n", changed, note)
