"""One file a few commands: their arguments, and what they do."""

from embershard.commands.asking import add_predict
from embershard.commands.benching import add_bench
from embershard.commands.compiling import add_compile
from embershard.commands.controlling import add_label, add_load, add_unload
from embershard.commands.explaining import add_explain
from embershard.commands.fetching import add_fetch
from embershard.commands.packages import add_inspect, add_verify
from embershard.commands.planning import add_calibrate, add_plan_command
from embershard.commands.serving import add_serve
from embershard.commands.signing import add_sign
from embershard.commands.training import add_export, add_train
from embershard.commands.triton import add_triton_config

__all__ = [
    "add_bench",
    "add_calibrate",
    "add_compile",
    "add_explain",
    "add_export",
    "add_fetch",
    "add_inspect",
    "add_label",
    "add_load",
    "add_plan_command",
    "add_predict",
    "add_serve",
    "add_sign",
    "add_train",
    "add_triton_config",
    "add_unload",
    "add_verify",
]
