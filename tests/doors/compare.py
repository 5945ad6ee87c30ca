from gputui.engine.compare import baseline, comparison
from gputui.engine.compare.baseline import LineUp, line_up
from gputui.engine.compare.caveats import caveats
from gputui.engine.compare.comparison import Comparison, compare
from gputui.engine.compare.same_code import CodeRow
