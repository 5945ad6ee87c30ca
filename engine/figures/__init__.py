"""Every figure that gputui shows, declared once: its names, unit, digits, which way is better, meaning and source.

A new figure is a line in run.py, machine.py or findings.py; `shown` says in which tables and panels it stands, and
these read it from here.
"""

from __future__ import annotations

from .figure import Figure as Figure
from .figure import View as View
from .figure import at as at
from .findings import PROFILE as PROFILE
from .findings import evidence as evidence
from .findings import is_declared as is_declared
from .findings import measurement as measurement
from .machine import GPU as GPU
from .machine import HOST as HOST
from .run import LOSS as LOSS
from .run import NOT_SHOWN as NOT_SHOWN
from .run import RUN as RUN
from .run import metric as metric
from .run import of_run as of_run
from .run import shown as shown
from .run import summed_up as summed_up
