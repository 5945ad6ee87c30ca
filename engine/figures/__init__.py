"""Every figure that gputui shows, declared once: its names, unit, digits, which way is better, meaning and source.

A new figure is a line in run.py, machine.py or diagnosis.py. `shown` names the tables and panels that show it; they
read the declaration from here.
"""

from __future__ import annotations

from .diagnosis import PROFILE as PROFILE
from .diagnosis import evidence as evidence
from .diagnosis import is_declared as is_declared
from .diagnosis import measurement as measurement
from .figure import Figure as Figure
from .figure import View as View
from .figure import at as at
from .machine import GPU as GPU
from .machine import HOST as HOST
from .run import LOSS as LOSS
from .run import NOT_SHOWN as NOT_SHOWN
from .run import RUN as RUN
from .run import metric as metric
from .run import of_run as of_run
from .run import shown as shown
from .run import summed_up as summed_up
