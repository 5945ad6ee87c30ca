"""All options as rows in their groups: moving between rows, folding, and searching by words. A single row is in
option_row.py, the actions of the form are in screens/form/screen.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, groupby, pairwise

from textual import events, on
from textual.app import ComposeResult
from textual.content import Content
from textual.geometry import Offset, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.layouts.vertical import VerticalLayout
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from ...engine.options import OPTIONS
from ..base import keys
from ..base.errors import clean
from ..base.glyphs import glyphs_of
from ..base.keys import bind
from ..drawing.rows import whole_words
from ..form.form_state import FormState, about_group
from ..form.option_search import search, suggestion
from ..upstream.textual_widgets import use_layout
from .option_row import OptionRow

INDENT = 3  # of the name of a part: the mark of the focus, and whether it is folded


class GroupHeading(Widget):
    """The heading of a group of options: its name, the number of changed options, and its description."""

    DEFAULT_CSS = "GroupHeading { height: 1; margin-top: 1; padding: 0 0 0 1; }"

    def __init__(self, group: str, keys: list[str], state: FormState) -> None:
        super().__init__(classes="heading", id=f"heading-{group}")
        self.group, self.keys, self.state = group, keys, state
        self._drawn = ""

    def show(self) -> None:
        if _counted(self.keys, self.state) != self._drawn:
            self.refresh()

    def render(self) -> Content:
        self._drawn = counted = _counted(self.keys, self.state)
        name = f"{self.group}  "
        room = self.size.width - len(name) - len(counted)
        line = Content.assemble(
            (name, "bold $text-primary"),
            (counted, "bold $text-accent"),
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

    @dataclass
    class Folded(Message):
        """The part of this heading was folded or unfolded."""

        heading: PartHeading

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


COLUMN_WIDTH = 56  # two columns from twice this width on
NARROW_COLUMN_WIDTH = 38  # of three columns, and of groups with short values if the other groups take the whole width
SHORT_GROUPS = ("precision", "compile", "input", "strategy", "device")  # of the GPU and the speed
Stop = OptionRow | PartHeading  # the widgets that can have the focus


class OptionsView(Widget):
    """Shows all options below their headings, in two columns if there is room, and during a search only the hits, the
    best first."""

    BINDINGS = keys.moves("step(1)", "step(-1)", "edge(0)", "edge(-1)", "section(1)", "section(-1)")

    class Moved(Message):
        """The focus, or the option whose help is shown, has changed. The new row or heading is the field `last` of the
        view."""

    def __init__(self, state: FormState) -> None:
        super().__init__(id="options")
        use_layout(self, ColumnLayout())
        self.state = state
        self.last_key = OPTIONS[0].key
        self.rows = {info.key: OptionRow(info.key, state) for info in OPTIONS}
        self.parts = [
            PartHeading(part, [info.key for info in infos], state)
            for (_, part), infos in groupby(OPTIONS, key=lambda info: (info.group, info.about.part))
            if part
        ]
        self.headings = {
            group: GroupHeading(group, [info.key for info in infos], state)
            for group, infos in groupby(OPTIONS, key=lambda info: info.group)
        }
        self.last: Stop = self.rows[self.last_key]
        self._laid_out = Size()
        self._hits: list[str] | None = None  # the keys that a search has found
        self._in_order = list(self._lines())
        self.room = 0  # rows on the screen: if two columns need more, there are three
        self._two, self._three = (_in_columns(self._in_order, count) for count in (2, 3))
        self._rows_of_two = max(map(_height, self._two))
        short = [line for line in self._in_order if getattr(line, "group", "") in SHORT_GROUPS]
        self._short, self._short_two = set(short), _in_columns(short, 2)

    def _lines(self) -> Iterator[Widget]:
        opening = {part.keys[0]: part for part in self.parts}
        for heading in self.headings.values():
            yield heading
            for key in heading.keys:
                if key in opening:
                    yield opening[key]
                yield self.rows[key]

    def compose(self) -> ComposeResult:
        yield from self._in_order
        yield Static(id="no-match", markup=False)
        self._arrange()

    def bands_of(self, children: list[Widget], size: Size) -> list[list[list[Widget]]]:
        """Return the visible children in bands below each other, each a list of columns: hits of a search in one,
        groups in two or, if these are too high, three; in a narrow form only short groups stand side by side."""
        # A new size scrolls the focused option into view: remarks may have hidden it, and Textual (8.2) sends no
        # Resize if they are laid out during a scroll.
        if size != self._laid_out:
            self._laid_out = size
            self.call_after_refresh(self._show_last)
        width = size.width
        if self._hits is not None:
            ranks = {key: rank for rank, key in enumerate(self._hits)}
            return [[sorted(children, key=lambda child: ranks.get(getattr(child, "key", ""), -1))]]
        if width < 2 * NARROW_COLUMN_WIDTH:
            return [[children]]
        low = width >= 3 * NARROW_COLUMN_WIDTH and self._rows_of_two > self.room
        wide = width >= 2 * COLUMN_WIDTH
        columns, visible = (self._three if low else self._two) if wide else self._short_two, set(children)
        seen = [[line for line in column if line in visible] for column in columns]
        return [seen] if wide else [seen, [[child for child in children if child not in self._short]]]

    @property
    def current(self) -> Stop:
        """The row or heading that has the focus or had it last. If that is hidden, the first visible row or heading."""
        return self.last if self.last.display or not self.shown else self.shown[0]

    @property
    def shown(self) -> list[Stop]:
        """The visible rows and headings that can have the focus, in their order on the screen."""
        if self._hits is not None:
            return [self.rows[key] for key in self._hits]
        return [line for line in self._in_order if isinstance(line, Stop) and line.display]

    def load(self, state: FormState) -> None:
        """Show the options of `state` in all rows and headings."""
        self.state = state
        for row in self.rows.values():
            row.finish(True)
            row.state = state
            row.show()
        for heading in self.headings.values():
            heading.state = state
        for part in self.parts:
            part.state = state
            part.was_used = part.used
            part.folded = not part.was_used
        self._arrange()
        self.show_counts()

    def show_counts(self) -> None:
        """Draw the headings with their numbers of changed options again. Each part is unfolded in which the first
        option was changed."""
        for part in self.parts:
            if part.unfold_if_newly_used():
                self._arrange()
            part.show()
        for heading in self.headings.values():
            heading.show()

    def grey(self, reason: str) -> None:
        """Grey out the options that need a GPU, with the reason why there is none; an empty one makes them usable
        again."""
        for row in self.rows.values():
            row.grey(reason if row.info.about.gpu_only else "")

    # ---- searching and folding ----------------------------------------------------------------------

    def narrow(self, words: str) -> None:
        """Show only the options that match the words, the best first. An empty text shows all options."""
        hits = {hit.item.key: hit for hit in search(words)} if words.strip() else None
        self._hits = list(hits) if hits is not None else None
        for key, row in self.rows.items():
            row.hit = hits.get(key) if hits else None
            row.show()
        nothing: Content | str = ""
        if hits == {}:  # with a similar name of an option if there is one
            near = suggestion(words)
            nothing = Content.assemble(
                ("no option matches ", "bold $text-warning"),
                (clean(words.strip()), "bold"),
                f"\n\ndid you mean {near}?" if near else "\n\n",
                "\nSearch for a part of a name, for what you want to reach (memory, threads, seed), or for a "
                "TensorFlow call.",
                "\nescape: all options",
            )
        self.query_one("#no-match", Static).update(nothing)
        self._arrange()
        self.scroll_home(animate=False, immediate=True)
        self.post_message(self.Moved())  # another row may be the first that is seen

    def reveal(self, key: str) -> None:
        """Unfold the part that contains the option `key`."""
        for part in self.parts:
            if part.folded and key in part.keys:
                part.action_fold(False)
                self._arrange()

    @on(PartHeading.Folded)
    def _folded(self, event: PartHeading.Folded) -> None:
        event.stop()
        self._arrange()
        self.call_after_refresh(self._show_last)

    def _arrange(self) -> None:
        """Show the rows and headings that are neither folded nor hidden by a search."""
        folded = {key for part in self.parts if part.folded for key in part.keys}
        for key, row in self.rows.items():
            row.display = key in self._hits if self._hits is not None else key not in folded
        for heading in (*self.headings.values(), *self.parts):
            heading.display = self._hits is None
        for nothing in self.query("#no-match"):
            nothing.display = self._hits == []
        self.refresh(layout=True)

    # ---- following the focus ------------------------------------------------------------------------

    @on(events.DescendantFocus)
    def _focus_moved(self, event: events.DescendantFocus) -> None:
        stop = event.widget if isinstance(event.widget, Stop) else event.widget.parent
        if not isinstance(stop, Stop):
            return
        if stop is not self.last:
            self.last = stop
            if isinstance(stop, OptionRow):
                self.last_key = stop.key
            self.post_message(self.Moved())
        self.call_after_refresh(self._show_last)

    def _show_last(self) -> None:
        if self.last.display and self.last.has_focus_within:
            self._bring_to_view(self.last)

    def point_at(self, key: str) -> None:
        """Scroll to the option `key` and show its help. The focus does not move."""
        self.last, self.last_key = self.rows[key], key
        self.post_message(self.Moved())
        self.call_after_refresh(self._bring_to_view, self.last)

    def _bring_to_view(self, stop: Stop) -> None:
        # At once: Textual computes a deferred scroll from the position at the request, so that two would end wrong.
        if self._hits is None:
            above = self._in_order[: self._in_order.index(stop)]
            while above and isinstance(above[-1], GroupHeading | PartHeading):
                self.scroll_to_widget(above.pop(), animate=False, immediate=True)
        self.scroll_to_widget(stop, animate=False, immediate=True)

    # ---- moving -------------------------------------------------------------------------------

    def focus_last(self) -> None:
        if self.last.display:
            self.last.focus()
        else:
            self.action_edge(0)

    @on(OptionRow.Step)
    def _stepped(self, event: OptionRow.Step) -> None:
        self.action_step(event.by)

    def action_step(self, by: int) -> None:
        shown = self.shown
        if shown:
            at = shown.index(self.last) + by if self.last in shown else 0
            shown[max(0, min(len(shown) - 1, at))].focus()

    def action_section(self, by: int) -> None:
        firsts = [next(stops) for _, stops in groupby(self.shown, key=lambda stop: stop.group)]
        groups = [stop.group for stop in firsts]
        if firsts:
            group = self.last.group
            at = groups.index(group) + by if group in groups else 0
            firsts[max(0, min(len(firsts) - 1, at))].focus()

    def action_edge(self, at: int) -> None:
        if self.shown:
            self.shown[at].focus()


def _in_columns(lines: list[Widget], count: int) -> list[list[Widget]]:
    starts = [at for at, line in enumerate(lines) if isinstance(line, GroupHeading)]
    splits = ([0, *cut, len(lines)] for cut in combinations(starts[1:], count - 1))
    columns = ([lines[begin:end] for begin, end in pairwise(split)] for split in splits)
    return min(columns, key=lambda parts: max(map(_height, parts)))


def _height(lines: list[Widget]) -> int:
    rows = [line for line in lines if not (isinstance(line, OptionRow) and line.info.about.part)]
    return len(rows) + sum(isinstance(line, GroupHeading) for line in rows)  # with the empty row above them


class ColumnLayout(Layout):
    """A layout in columns of equal width. A band begins below the longest column of the band above it. The order of the
    children does not matter."""

    name = "columns"

    def __init__(self) -> None:
        self._vertical = VerticalLayout()

    def arrange(self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True) -> ArrangeResult:
        assert isinstance(parent, OptionsView)
        placements: list[WidgetPlacement] = []
        top = 0
        for columns in parent.bands_of(children, size):
            width, below = size.width // max(1, len(columns)), top
            for number, column in enumerate(columns):
                placed = list(self._vertical.arrange(parent, column, Size(width, size.height), greedy))
                placements += WidgetPlacement.translate(placed, Offset(number * width, top))
                below = max([below, *(top + placement.region.bottom + placement.margin.bottom for placement in placed)])
            top = below
        return placements
