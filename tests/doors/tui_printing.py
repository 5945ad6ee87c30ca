from gputui.tui.printing import proof
from gputui.tui.printing.diagnosis import lines
from gputui.tui.printing.run_progress import LineView
