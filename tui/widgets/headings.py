"""The headings of the form: of a group of options, and of a part of a group that can be folded. Both show how many of
their options differ from the default."""

from __future__ import annotations

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from ..base.glyphs import glyphs_of
from ..base.keys import bind
from ..drawing.rows import whole_words
from ..form.form_state import FormState, about_group

INDENT = 3  # of the name of a part: the mark of the focus, and whether it is folded


class GroupHeading(Widget):
    """The heading of a group of options: its name, the number of changed options, and its description."""

    DEFAULT_CSS = "GroupHeading { height: 1; margin-top: 1; padding: 0 0 0 1; }"

    def __init__(self, group: str, keys: list[str], state: FormState) -> None:
        super().__init__(classes="heading", id=f"heading-{group}")
        self.group, self.keys, self.state = group, keys, state
        self._counted = ""

    def show(self) -> None:
        if _counted(self.keys, self.state) != self._counted:
            self.refresh()

    def render(self) -> Content:
        self._counted = _counted(self.keys, self.state)
        name = f"{self.group}  "
        room = self.size.width - len(name) - len(self._counted)
        line = Content.assemble(
            (name, "bold $text-primary"),
            (self._counted, "bold $text-accent"),
            (whole_words(about_group(self.group), room, glyphs_of(self.app)), "$foreground-muted"),
        )
        return line.truncate(self.size.width, ellipsis=True)


class PartHeading(Widget, can_focus=True):
    """The heading of a part of a group that few users need. The options of the part are shown only while it is
    unfolded."""

    BINDINGS = [
        bind("open", "fold", "Fold or unfold", meaning="fold or unfold"),
        bind("mark", "fold", "Fold or unfold", show=False, meaning="fold or unfold"),
        bind("next_choice", "fold(False)", "Unfold", show=False, meaning="unfold"),
        bind("previous_choice", "fold(True)", "Fold", show=False, meaning="fold"),
    ]
    DEFAULT_CSS = "PartHeading { height: 1; }"

    class Folded(Message):
        """The part of this heading was folded or unfolded."""

        def __init__(self, heading: PartHeading) -> None:
            super().__init__()
            self.heading = heading

    def __init__(self, part: str, keys: list[str], state: FormState) -> None:
        super().__init__(id=f"part-{keys[0].replace('.', '-')}")
        self.part, self.keys, self.state = part, keys, state
        self.was_used = self.used
        self.folded = not self.was_used
        self._drawn: tuple[str, bool] = "", self.folded

    def unfold_if_newly_used(self) -> bool:
        """Unfold the part when its first option was changed. If the user folds it later, it stays folded."""
        newly = self.used and not self.was_used
        self.was_used = self.used
        self.folded = self.folded and not newly
        return newly

    def show(self) -> None:
        """Draw the heading again if the number of changed options differs, or if the part was folded or unfolded."""
        if (_counted(self.keys, self.state), self.folded) != self._drawn:
            self.refresh()

    @property
    def group(self) -> str:
        return self.keys[0].partition(".")[0]

    @property
    def used(self) -> bool:
        return any(not self.state.is_default(key) or self.state.is_unsaved(key) for key in self.keys)

    def render(self) -> Content:
        glyphs = glyphs_of(self.app)
        names = ", ".join(key.partition(".")[2] for key in self.keys)
        self._drawn = counted, _ = _counted(self.keys, self.state), self.folded
        part = whole_words(self.part, self.size.width - len(counted.rstrip()) - INDENT - 2, glyphs)
        room = self.size.width - INDENT - len(part) - 2 - len(counted)
        line = Content.assemble(
            (">" if self.has_focus else " ", "bold $text-warning"),
            (f" {glyphs.folded if self.folded else glyphs.unfolded} ", "$text-primary"),
            (f"{part}  ", "$text-primary"),
            (counted, "bold $text-accent"),
            (whole_words(names, room, glyphs) if self.folded else "", "$foreground-muted"),
        )
        return line.truncate(self.size.width, ellipsis=True)

    def action_fold(self, folded: bool | None = None) -> None:
        """Fold or unfold the part; with None, turn it."""
        if folded != self.folded:
            self.folded = not self.folded
            self.refresh()
            self.post_message(self.Folded(self))

    def watch_has_focus(self, focused: bool) -> None:
        super().watch_has_focus(focused)
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.action_fold()


def _counted(keys: list[str], state: FormState) -> str:
    count = sum(not state.is_default(key) for key in keys)
    return f"{count} changed  " if count else ""
