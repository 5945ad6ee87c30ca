from gputui.tui.screens import base, starting, undoing
from gputui.tui.screens.base import AppScreen, FollowingScreen, Header
from gputui.tui.screens.catalogue import SCREENS, ScreenEntry, offers_all
from gputui.tui.screens.chart import ChartScreen
from gputui.tui.screens.compare.screen import CompareScreen
from gputui.tui.screens.dialogs import Ask, AskText, ChoiceScreen, CopyScreen, Copyable, SEEN_AFTER_SECONDS
from gputui.tui.screens.form.screen import FormScreen
from gputui.tui.screens.gpus import screen as gpus_screen
from gputui.tui.screens.gpus.screen import GpusScreen, ProcessesScreen
from gputui.tui.screens.help import ACTING, HelpScreen, working
from gputui.tui.screens.live import view
from gputui.tui.screens.live.diagnosis import DiagnosisScreen
from gputui.tui.screens.live.screen import LiveScreen
from gputui.tui.screens.live.view import NOTHING_READ
from gputui.tui.screens.presets import editor, saving, screen as presets_screen
from gputui.tui.screens.presets.screen import PresetsScreen
from gputui.tui.screens.proof import actions
from gputui.tui.screens.proof.proofs import ProofsScreen
from gputui.tui.screens.proof.scaling import ScalingScreen
from gputui.tui.screens.proof.screen import ProofScreen
from gputui.tui.screens.proof.sweep import SweepScreen
from gputui.tui.screens.proof.sweep_dialog import SweepDialog
from gputui.tui.screens.runs import screen as runs_screen, side_view, watch
from gputui.tui.screens.runs.queue_actions import QueueActions
from gputui.tui.screens.runs.run_table import RunsTable
from gputui.tui.screens.runs.screen import RunsScreen
from gputui.tui.screens.runs.side_view import SideView
from gputui.tui.screens.runs.watch import RunWatch
from gputui.tui.screens.settings import SettingsRows
from gputui.tui.screens.starting import Start
from gputui.tui.screens.tune.limits_dialog import TuneDialog
from gputui.tui.screens.tune.screen import TuneScreen
