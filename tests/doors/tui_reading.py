from gputui.tui.reading import earlier_starts, preset_files, queue, queue_times, run_list
from gputui.tui.reading.earlier_starts import start_of
from gputui.tui.reading.machine import Line as machine_Line, Users
from gputui.tui.reading.preset_files import Listing
from gputui.tui.reading.queue_places import Waiting
from gputui.tui.reading.run import reader
from gputui.tui.reading.run.gpu_reading import Gpu, GpuProcess, by_physical_gpu
from gputui.tui.reading.run.reader import MergedTail, Picture, RunReader
from gputui.tui.reading.run.series import CAPACITY, Line as series_Line, Series
from gputui.tui.reading.run.snapshot import Epoch, Message, Snapshot
from gputui.tui.reading.run.store import Store
from gputui.tui.reading.run_columns import COLUMNS, matching, ordered, usual
from gputui.tui.reading.run_list import Ended, Entry, Now, RunList, entry_of, queue_first
from gputui.tui.reading.sweep_rows import SweepEntry
