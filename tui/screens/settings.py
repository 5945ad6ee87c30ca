"""The settings of the screens in a list: a key changes one, and the change is written to the settings file at once."""

from __future__ import annotations

from dataclasses import Field
from functools import partial
from typing import Any, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from ...engine.queue import queue_settings
from ..base import keys
from ..base.base_app import Act
from ..base.errors import clean
from ..base.settings import declared, takes, wrong
from ..base.themes import THEMES
from ..drawing.rows import Row, fitting, wrapped
from ..widgets.key_footer import KeyFooter
from ..widgets.row_widgets import Panel
from .base import Header
from .dialogs import UNDO_BINDINGS, AskText, UndoActions

# Settings that other screens change by keys of their own.
ELSEWHERE = {"runs.columns": "columns", "runs.sort": "sort_left", "runs.descending": "invert", "runs.filter": "search"}
READINGS = "time between readings: run.sample_seconds"
SECRET = "notify.url"  # may hold a token
NAME_WIDTH, VALUE_WIDTH = 21, 18


def parsed(setting: Field[Any], text: str) -> Any:
    """Return a typed value with the type of the setting's default, if possible."""
    default = setting.metadata["default"]
    if isinstance(default, float):
        try:
            return float(text)
        except ValueError:
            return text
    return text.strip()


class SettingsRows(OptionList):
    BINDINGS = [
        keys.bind("open", "select", "Change", meaning="switch it, take its next word, or type a value"),
        *keys.moves(),
    ]


class SettingsScreen(UndoActions):
    """Lists all settings with their values. Values that differ from their defaults are marked."""

    CSS_PATH = "settings.tcss"
    AUTO_FOCUS = "#settings"
    PLACE = "settings"
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("delete", "reset", "Default", meaning="back to the default"),
        *UNDO_BINDINGS,
        *keys.back(),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._settings = dict(declared())

    def compose(self) -> ComposeResult:
        yield Header(Static("Settings", id="title"))
        yield SettingsRows(id="settings", compact=True, markup=False)
        yield Panel(self._about, id="about")
        yield KeyFooter()

    def on_mount(self) -> None:
        self._fill(0)

    def show_again(self) -> None:
        self._fill(self._rows.highlighted or 0)

    @property
    def _rows(self) -> SettingsRows:
        return self.query_one(SettingsRows)

    @property
    def key(self) -> str:
        return list(self._settings)[self._rows.highlighted or 0]

    def _fill(self, at: int) -> None:
        rows = self._rows
        rows.set_options(Option(self._prompt(key), id=key) for key in self._settings)
        rows.highlighted = at
        self.query_one(Panel).repaint()

    def _value(self, key: str) -> Any:
        return self.app.theme if key == "theme" else self.app.settings.get(key)

    def _prompt(self, key: str) -> Content:
        setting, value = self._settings[key], self._value(key)
        changed = value != setting.metadata["default"] and key != "theme"
        text = fitting(clean(_as_text(key, value)), VALUE_WIDTH - 1, self.glyphs)
        return Content.assemble(
            ("* " if changed else "  ", "bold $text-primary"),
            key.ljust(NAME_WIDTH),
            (text.ljust(VALUE_WIDTH), "bold" if changed else ""),
            (setting.metadata["meaning"], "$foreground-muted"),
        )

    def _about(self, width: int, height: int) -> list[Row]:
        """The setting's meaning with its values, its file, and where settings of other parts are."""
        setting = self._settings[self.key]
        default = _as_text(self.key, setting.metadata["default"])
        default = "empty" if default == "-" else default
        values = f"one of {', '.join(self._words(self.key))}" if self.key == "theme" else takes(setting)
        text = f"{setting.metadata['meaning']}; takes {values}; default {default}"
        lines = wrapped(text, width, self.glyphs, height - 2)
        places = f"in {self.app.settings.path}", f"the queue: {queue_settings.FILE} next to it; {READINGS}"
        return [[(line, style)] for part, style in ((lines, "value"), (places, "label")) for line in part]

    # ---- keys -------------------------------------------------------------------------------------

    @on(OptionList.OptionHighlighted)
    def _moved(self) -> None:
        self.query_one(Panel).repaint()

    @on(OptionList.OptionSelected)
    def _change(self) -> None:
        key, value = self.key, self._value(self.key)
        words = self._words(key)
        if words:
            self._set(key, words[(words.index(value) + 1) % len(words)] if value in words else words[0])
        elif key in ELSEWHERE:
            runs, press = self.app.key("runs"), self.app.key(ELSEWHERE[key])
            self.app.notify(f"{press} in the list of runs ({runs}) changes it", markup=False)
        elif isinstance(self._settings[key].metadata["default"], dict):
            self.app.notify(f"write it into {self.app.settings.path}; it is read when gputui starts", markup=False)
        else:
            self._ask(key)

    def _words(self, key: str) -> list[Any]:
        # Empty if a value is typed or set elsewhere.
        if key in ELSEWHERE:
            return []
        if key == "theme":
            return [theme.name for theme in THEMES]
        setting = self._settings[key]
        return [False, True] if isinstance(setting.metadata["default"], bool) else list(setting.metadata["choices"])

    @work(exclusive=True, group="setting")
    async def _ask(self, key: str) -> None:
        setting = self._settings[key]
        asking = AskText(
            f"{key}: {takes(setting)}", str(self._value(key)), lambda text: wrong(setting, parsed(setting, text))
        )
        if (text := await self.app.push_screen_wait(asking)) is not None:
            self._set(key, parsed(setting, text))

    def action_reset(self) -> None:
        """Set the default of the setting under the cursor, unless it is changed elsewhere or is the theme."""
        default = self._settings[self.key].metadata["default"]
        if self.key != "theme" and self.key not in ELSEWHERE and not isinstance(default, dict):
            self._set(self.key, default)

    def taken_back(self, act: Act) -> None:
        self._fill(list(self._settings).index(act.key))

    def _set(self, key: str, value: Any) -> None:
        if (former := self._value(key)) != value:
            what = f"changed {key} from {_as_text(key, former)} to {_as_text(key, value)}"
            self.did(what, partial(self.app.call_from_thread, self._put, key, former), key=key)
        self._put(key, value)

    def _put(self, key: str, value: Any) -> None:
        # The application writes a theme itself.
        if key == "theme":
            self.app.theme = value
        else:
            self.app.settings.change(key, value)
        if self.is_attached:
            self._fill(self._rows.highlighted or 0)


def _as_text(key: str, value: Any) -> str:
    # Of an address that may hold a token only the host is shown.
    if key == SECRET and value:
        return value.partition("//")[2].partition("/")[0].rpartition("@")[2] or "given"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, dict):
        return ", ".join(value) or "-"
    return ", ".join(value) or "-" if isinstance(value, tuple) else str(value) or "-"
