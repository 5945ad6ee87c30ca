from gputui.engine.export import export_folder, form, script
from gputui.engine.export.data import DIGITS
from gputui.engine.export.export_folder import Exported, export
from gputui.engine.export.form import Form, RefusedError
from gputui.engine.export.own_code import stateful_draws
from gputui.engine.export.script import TITLE, to_script
from gputui.engine.export.specialised import Partly, Specialiser
