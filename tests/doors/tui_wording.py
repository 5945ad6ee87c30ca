from gputui.tui.wording import comparison
from gputui.tui.wording.run import next_step, scaled_learning_rate
