from gputui.engine import __version__, checks, diagnosis, doctor, plan, presets, runs, units
from gputui.engine.entry import EntryFault, examine
from gputui.engine.follow_targets import FOLDER
from gputui.engine.units import clock
