"""Features of this machine's processor."""

from pathlib import Path


def processor_flags() -> set[str]:
    """The flags of the first processor in /proc/cpuinfo."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, flags = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return set(flags.split())
    return set()
