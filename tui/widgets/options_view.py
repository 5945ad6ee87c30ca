"""The options as rows: first the essential ones, below them the others in folded groups; moving, folding, and searching
by words. A single row is in option_row.py, the actions of the form are in screens/form/screen.py."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from textual import events, on
from textual.app import ComposeResult
from textual.content import Content
from textual.geometry import Offset, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.layouts.vertical import VerticalLayout
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from ...engine.options import ESSENTIALS, OPTIONS
from ..base import keys
from ..base.errors import clean
from ..base.glyphs import glyphs_of
from ..base.keys import bind
from ..drawing.rows import whole_words
from ..form.form_state import FormState, about_group
from ..form.option_search import search, suggestion
from ..upstream.textual_widgets import use_layout
from .option_row import OptionRow

NAME_WIDTH = 12  # of a group, with its mark and the sign that it is folded


class GroupHeading(Widget, can_focus=True):
    """The heading of a group: how many of its options are changed, and how many there are."""

    BINDINGS = [
        bind("open", "fold", "Fold or unfold", meaning="fold or unfold"),
        bind("mark", "fold", "Fold or unfold", show=False, meaning="fold or unfold"),
        bind("next_choice", "fold(False)", "Unfold", show=False, meaning="unfold"),
        bind("previous_choice", "fold(True)", "Fold", show=False, meaning="fold"),
    ]
    DEFAULT_CSS = "GroupHeading { height: 1; }"

    @dataclass
    class Folded(Message):
        """The group of this heading was folded or unfolded."""

        heading: GroupHeading

    def __init__(self, group: str, keys: list[str], state: FormState) -> None:
        super().__init__(id=f"heading-{group}")
        self.group, self.keys, self.state = group, keys, state
        self.folded = True
        self._drawn: tuple[str, str, bool] | None = None

    @property
    def applicable(self) -> list[str]:
        """The keys of the options that the group shows if it is unfolded."""
        return [key for key in self.keys if not self.state.is_hidden(key)]

    @property
    def _shown(self) -> tuple[str, str, bool]:
        """The mark, the numbers of options, and whether the group is folded."""
        keys = self.applicable
        changed = sum(not self.state.is_default(key) for key in keys)
        marks = {self.state.mark(key) for key in keys}
        mark = next((mark for mark in "!+" if mark in marks), " ")
        return mark, f"{changed} of {len(keys)} changed" if changed else f"{len(keys)}", self.folded

    def show(self) -> None:
        """Draw the heading again if it has changed."""
        if self._shown != self._drawn:
            self.refresh()

    def render(self) -> Content:
        glyphs = glyphs_of(self.app)
        self._drawn = mark, counted, _ = self._shown
        sign = glyphs.folded if self.folded else glyphs.unfolded
        room = self.size.width - NAME_WIDTH - len(sign) - len(counted) - 4
        line = Content.assemble(
            (f"{'>' if self.has_focus else ' '}{mark}", "bold $text-primary"),
            (f"{sign} {self.group:{NAME_WIDTH - 1}}", "$text-primary"),
            (f"{counted}  ", "bold $text-accent" if "changed" in counted else "$foreground-muted"),
            (whole_words(about_group(self.group), room, glyphs), "$foreground-muted"),
        )
        return line.truncate(self.size.width, ellipsis=True)

    def action_fold(self, folded: bool | None = None) -> None:
        """Fold or unfold the group; with None, turn it."""
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


COLUMN_WIDTH = 38  # two columns from twice this width on
COLUMNS = (("training", "what is trained, and how"), ("speed", "how it uses the devices"))
SPEED_GROUPS = ("precision", "compile", "input", "strategy", "device")  # the groups of the column `speed`
Stop = OptionRow | GroupHeading  # the widgets that can have the focus


class OptionsView(Widget):
    """Shows the essential options, below them the groups of the others; during a search the hits."""

    BINDINGS = keys.moves("step(1)", "step(-1)", "edge(0)", "edge(-1)", "section(1)", "section(-1)")

    class Moved(Message):
        """The focus, or the option whose help is shown, has changed, to the view's `last`."""

    def __init__(self, state: FormState) -> None:
        super().__init__(id="options")
        use_layout(self, ColumnLayout())
        self.state = state
        self.rows = {info.key: OptionRow(info.key, state) for info in (*ESSENTIALS, *OPTIONS)}
        self.headings: dict[str, GroupHeading] = {}
        for group, infos in groupby(OPTIONS, key=lambda info: info.group):
            self.headings[group] = GroupHeading(group, [i.key for i in infos if not i.about.essential], state)
        self.columns: list[list[Widget]] = []
        half = len(ESSENTIALS) // 2
        for number, (title, about) in enumerate(COLUMNS):
            head = Content.assemble((f" {title}  ", "bold $text-primary"), (about, "$foreground-muted"))
            column: list[Widget] = [Static(head, classes="heading")]
            column += [self.rows[info.key] for info in ESSENTIALS[number * half :][:half]]
            headings = [each for each in self.headings.values() if (each.group in SPEED_GROUPS) == bool(number)]
            headings[0].add_class("-first")
            for heading in headings:
                column += [heading, *(self.rows[key] for key in heading.keys)]
            self.columns.append(column)
        self._in_order = [line for column in self.columns for line in column]
        self.last_key = ESSENTIALS[0].key
        self.last: Stop = self.rows[self.last_key]
        self._laid_out = Size()
        self._hits: list[str] | None = None  # the keys that a search has found
        self._hidden: set[str] = set()  # the keys that do not apply to the user's own code

    def compose(self) -> ComposeResult:
        yield from self._in_order
        yield Static(id="no-match", markup=False)
        self._arrange()

    def columns_of(self, children: list[Widget], size: Size) -> list[list[Widget]]:
        """Return the visible children in columns: hits of a search in one."""
        # A new size scrolls the focused option into view: remarks may have hidden it, and Textual (8.2) sends no
        # Resize if they are laid out during a scroll.
        if size != self._laid_out:
            self._laid_out = size
            self.call_after_refresh(self._show_last)
        if self._hits is not None:
            ranks = {key: rank for rank, key in enumerate(self._hits)}
            return [sorted(children, key=lambda child: ranks.get(getattr(child, "key", ""), -1))]
        if size.width < 2 * COLUMN_WIDTH:
            return [children]
        visible = set(children)
        return [[line for line in column if line in visible] for column in self.columns]

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
        self.state = state
        for row in self.rows.values():
            row.finish(True)
            row.state = state
            row.show()
        for heading in self.headings.values():
            heading.state = state
        self._arrange()
        self.show_counts()

    def show_counts(self) -> None:
        """Draw the headings with their numbers of changed options again, and show the options that apply by now."""
        if self._hidden != self._inapplicable():
            self._arrange()
        for heading in self.headings.values():
            heading.show()

    def _inapplicable(self) -> set[str]:
        return {key for key in self.rows if self.state.is_hidden(key)}

    def grey(self, reason: str) -> None:
        """Grey out the options that need a GPU, with the reason; an empty one makes them usable again."""
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
        for heading in self.headings.values():
            if heading.folded and key in heading.keys:
                heading.action_fold(False)
                self._arrange()

    @on(GroupHeading.Folded)
    def _folded(self, event: GroupHeading.Folded) -> None:
        event.stop()
        self._arrange()
        self.call_after_refresh(self._show_last)

    def _arrange(self) -> None:
        """Show the rows and headings that are neither folded nor hidden by a search."""
        self._hidden = self._inapplicable()
        hidden = self._hidden.union(*(heading.keys for heading in self.headings.values() if heading.folded))
        for key, row in self.rows.items():
            row.display = key in self._hits if self._hits is not None else key not in hidden
        for line in self._in_order:
            if not isinstance(line, OptionRow):
                line.display = self._hits is None
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
            while above and not isinstance(above[-1], OptionRow):
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
        firsts = [next(stops) for _, stops in groupby(self.shown, key=self._section)]
        sections = [self._section(stop) for stop in firsts]
        if firsts:
            section = self._section(self.last)
            at = sections.index(section) + by if section in sections else 0
            firsts[max(0, min(len(firsts) - 1, at))].focus()

    def _section(self, stop: Stop) -> str | tuple[bool, bool]:
        """Return the group of a stop; the essential options of a column are a section, and so are its folded groups."""
        essential = isinstance(stop, OptionRow) and bool(stop.info.about.essential)
        folded = isinstance(stop, GroupHeading) and stop.folded
        return (stop in self.columns[1], essential) if essential or folded else stop.group

    def action_edge(self, at: int) -> None:
        if self.shown:
            self.shown[at].focus()


class ColumnLayout(Layout):
    """A layout in columns of equal width. The order of the children does not matter."""

    name = "columns"

    def __init__(self) -> None:
        self._vertical = VerticalLayout()

    def arrange(self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True) -> ArrangeResult:
        assert isinstance(parent, OptionsView)
        columns = parent.columns_of(children, size)
        width = size.width // len(columns)
        placements: list[WidgetPlacement] = []
        for number, column in enumerate(columns):
            placed = self._vertical.arrange(parent, column, Size(width, size.height), greedy)
            placements += WidgetPlacement.translate(list(placed), Offset(number * width, 0))
        return placements
