from gputui.tui.form.form_state import FormState, History, INFO, Moment, to_text, to_value
from gputui.tui.form.option_search import search
from gputui.tui.form.search_limits import LimitTexts, WrongLimit
