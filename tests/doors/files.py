from gputui.engine.files import appending, places, reading, run_numbers, values, writing, yaml_nodes
from gputui.engine.files.appending import Gap, KEPT_BYTES, LineFile
from gputui.engine.files.declared_types import completed
from gputui.engine.files.places import TRIALS, home, proofs_folder, runs_folder
from gputui.engine.files.reading import GrowingFile, open_regular
from gputui.engine.files.writing import ExistsError, write_atomically
from gputui.engine.files.yaml_text import YamlFault
