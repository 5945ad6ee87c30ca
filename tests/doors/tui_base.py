from gputui.tui.base import base_app, errors, keys, settings, terminal
from gputui.tui.base.base_app import BaseApp
from gputui.tui.base.errors import INTERRUPTED, Refused, WRONG, exit_code
from gputui.tui.base.glyphs import Glyphs, PLAIN, RICH
from gputui.tui.base.keys import VERBS, remapped, shown
from gputui.tui.base.settings import Charts, Settings, declared
from gputui.tui.base.themes import HIGH_CONTRAST, THEMES, colour
from gputui.tui.base.undo import Acts
from gputui.tui.base.unexpected_errors import Faults
