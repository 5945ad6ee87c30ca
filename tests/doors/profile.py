from gputui.engine.profile import reports, xprof_process, xprof_tables
from gputui.engine.profile.reports import ProfileError, ProfileReport, read
