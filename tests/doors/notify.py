from gputui.engine.notify import notice, of_runs, sending, targets
from gputui.engine.notify.notice import Notice
from gputui.engine.notify.targets import Targets
