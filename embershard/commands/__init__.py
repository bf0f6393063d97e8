"""One file a few commands: their arguments, and what they do."""

from embershard.commands.parser import Parser
from embershard.commands.signals import StopSignals

__all__ = ["Parser", "StopSignals"]
