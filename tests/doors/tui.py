from gputui.tui import app, cli, show
from gputui.tui.app import GputuiApp
