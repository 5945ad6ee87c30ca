from gputui.tui.drawing import charts, rate, tune, tune_leaderboard, tune_memory
from gputui.tui.drawing.live import head, phases
from gputui.tui.drawing.log_rows import judged, only, rows, wrapped
from gputui.tui.drawing.plot.canvas import draw
from gputui.tui.drawing.plot.curves import Plot
from gputui.tui.drawing.rows import Row, length, plain
