"""Every figure that gputui shows, declared once (declared.py): its names, unit, digits, which way is better, meaning
and source. The tables and panels in its field `shown` read its declaration from here.
"""

from __future__ import annotations

from .declared import GPU as GPU
from .declared import HIGHER_IS_BETTER as HIGHER_IS_BETTER
from .declared import HOST as HOST
from .declared import LOSS as LOSS
from .declared import NOT_SHOWN as NOT_SHOWN
from .declared import PROFILE as PROFILE
from .declared import RUN as RUN
from .declared import evidence as evidence
from .declared import is_declared as is_declared
from .declared import measurement as measurement
from .declared import metric as metric
from .declared import of_run as of_run
from .declared import shown as shown
from .declared import summed_up as summed_up
from .figure import Figure as Figure
from .figure import View as View
from .figure import at as at
