from gputui.tui.upstream import terminal_input, typeahead
from gputui.tui.upstream.partial_updates import ChangedCellsUpdate, Codes, Shown
from gputui.tui.upstream.terminal_input import PIECE_SECONDS, TerminalDriver, TerminalInput
from gputui.tui.upstream.thread_imports import in_background
from gputui.tui.upstream.typeahead import Typeahead
