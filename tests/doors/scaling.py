from gputui.engine.scaling import copies, scaling_request
from gputui.engine.scaling.rounds import Rounds
