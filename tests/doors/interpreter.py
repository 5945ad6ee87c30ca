from gputui.engine.interpreter import compatibility, installed, installed_query, interpreter, supported_versions
from gputui.engine.interpreter.interpreter import Interpreter
