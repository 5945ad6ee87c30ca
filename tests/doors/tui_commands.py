from gputui.tui.commands import compare, logs, presets, proof, serve, train
from gputui.tui.commands.proof import shareable
from gputui.tui.commands.train import AGAIN_SECONDS
