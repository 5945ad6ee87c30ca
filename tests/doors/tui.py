from gputui.tui import app, show, cli as tui_cli
from gputui.tui.app import GputuiApp
from gputui.tui.base import base_app, errors, glyphs, keys, settings
from gputui.tui.base.base_app import BaseApp, Faults
from gputui.tui.base.errors import INTERRUPTED, WRONG, exit_code
from gputui.tui.base.glyphs import Glyphs, PLAIN, RICH, WITHOUT_COLOURS
from gputui.tui.base.keys import VERBS, remapped, shown
from gputui.tui.base.settings import Charts, Settings, declared
from gputui.tui.base.themes import HIGH_CONTRAST, THEMES, colour
from gputui.tui.base.base_app import Acts
from gputui.tui.cli import cli as cli_cli, form_state
from gputui.tui.commands import completion, logs, measuring, serve
from gputui.tui.commands.completion import Bash
from gputui.tui.commands.measuring import FollowOptions, shareable
from gputui.tui.commands.stopping import AGAIN_SECONDS, code_of
from gputui.tui.commands.train import LineView
from gputui.tui.drawing import charts, gpu_details, proof as drawing_proof, rate, sweep as drawing_sweep, tune
from gputui.tui.drawing.interval_bar import table_rows
from gputui.tui.drawing.live import head, layout, phases
from gputui.tui.drawing.log_rows import judged, only, rows, wrapped
from gputui.tui.drawing import previews as drawn_previews
from gputui.tui.drawing.plot import cursor
from gputui.tui.drawing.plot.canvas import draw, title
from gputui.tui.drawing.plot.curves import Curve, Plot
from gputui.tui.drawing.plot.viewport import Viewport
from gputui.tui.drawing.rows import length, plain
from gputui.tui.form.form_state import FormState, INFO, to_text, to_value
from gputui.tui.form import option_search
from gputui.tui.form.option_search import search
from gputui.tui.form.search_limits import LimitTexts, WrongLimit
from gputui.tui.printing.proof import ProofLines as printing_proof_ProofLines
from gputui.tui.reading import earlier_starts, machine, preset_files, queue, run_list
from gputui.tui.reading.preset_files import Listing
from gputui.tui.reading.queue_places import Waiting
from gputui.tui.reading.run import reader
from gputui.tui.reading.run.reader import MergedTail, Picture, RunReader
from gputui.tui.reading.run.series import CAPACITY, Series, Line as series_Line
from gputui.tui.reading.run.snapshot import Snapshot
from gputui.tui.reading.run.snapshot import Store
from gputui.tui.reading.run_columns import COLUMNS, matching, ordered, usual
from gputui.tui.reading.run_list import Ended, Entry, RunList, entry_of, queue_first
from gputui.tui.reading.sweep_rows import SweepEntry, in_sweeps
from gputui.tui.screens import base, presets as screens_presets, saving as screens_saving, starting
from gputui.tui.screens.base import AppScreen, FollowingScreen, Header
from gputui.tui.screens.catalogue import SCREENS, ScreenEntry
from gputui.tui.screens.chart import ChartScreen
from gputui.tui.screens.compare import CompareScreen
from gputui.tui.screens.dialogs import Ask, ChoiceScreen, CopyScreen, SEEN_AFTER_SECONDS
from gputui.tui.screens.form.screen import FormScreen
from gputui.tui.screens.gpus import GpusScreen
from gputui.tui.screens.help import ACTING, HelpScreen, working
from gputui.tui.screens.limits import SweepDialog, TuneDialog
from gputui.tui.screens.live.screen import DiagnosisScreen, LiveScreen, NOTHING_READ
from gputui.tui.screens.previews import PreviewScreen
from gputui.tui.screens.presets import PresetsScreen
from gputui.tui.screens.proof.screen import ProofScreen, ScalingScreen, SweepScreen, TuneScreen
from gputui.tui.screens.runs import actions as runs_actions, screen as runs_screen, watch
from gputui.tui.screens.runs.actions import RunActions
from gputui.tui.screens.runs.run_table import RunsTable
from gputui.tui.screens.runs.screen import RunsScreen, SideView
from gputui.tui.upstream import typeahead
from gputui.tui.upstream.partial_updates import ChangedCellsUpdate
from gputui.tui.upstream.terminal_input import PIECE_SECONDS, TerminalDriver, TerminalInput
from gputui.tui.upstream.thread_imports import in_background
from gputui.tui.widgets.charts import BigChart, Chart
from gputui.tui.widgets.start_bar import Findings
from gputui.tui.drawing.gpu_details import card
from gputui.tui.widgets.gpu_cards import kinds
from gputui.tui.widgets.key_footer import KeyFooter
from gputui.tui.widgets.log_view import LogLines, LogPanel
from gputui.tui.widgets.option_row import OptionRow, ValueInput
from gputui.tui.widgets.options_view import OptionsView
from gputui.tui.widgets.row_widgets import Painted, Panel, STYLES
from gputui.tui.wording import comparison
from gputui.tui.wording.run import next_step, scaled_learning_rate, worker_lines
