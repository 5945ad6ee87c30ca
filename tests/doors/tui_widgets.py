from gputui.tui.widgets.charts import BigChart, Chart
from gputui.tui.widgets.findings import Findings
from gputui.tui.widgets.gpu_cards import card
from gputui.tui.widgets.key_footer import KeyFooter
from gputui.tui.widgets.log_view import LogLines, LogPanel, LogTitle
from gputui.tui.widgets.option_row import OptionRow, ValueInput
from gputui.tui.widgets.options_view import OptionsView
from gputui.tui.widgets.row_widgets import Painted, Panel, STYLES
