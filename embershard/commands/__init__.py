"""The commands of the command line."""

from embershard.commands.parser import Parser
from embershard.commands.signals import StopSignals

__all__ = ["Parser", "StopSignals"]
