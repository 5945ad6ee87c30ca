from gputui.engine.prepare import layout, preparing, request, result_files, workers
from gputui.engine.prepare.estimates import Estimate
from gputui.engine.prepare.manifest import Broken, Manifest, ManifestError, Written
from gputui.engine.prepare.preparing import Progress
from gputui.engine.prepare.request import PrepareError, Request, of
