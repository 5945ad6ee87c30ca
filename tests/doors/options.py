from gputui.engine.options import (
    GROUPS, OPTIONS, OptionInfo, Options, SCHEMA_VERSION, by_key, gpu_choice, input, options_json, resolve_key,
)
from gputui.engine.options.catalogue import About, Group, catalogue
from gputui.engine.options.own_code import BATCHED
from gputui.engine.options.synonyms import keys_of, option_meant
from gputui.engine.options.validation import MisfitsError, validated
