"""What a compiled program asks of the machine that runs it."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Final

from embershard.errors import UnavailableError

__all__ = ["instructions_of", "target_of"]

_CPUINFO: Final = Path("/proc/cpuinfo")

# Of all that Linux says of a processor, what a compiler or a library of layers may make use of.
_SETS = (*("sse", "ssse", "avx", "amx", "fma", "bmi", "gfni", "vaes", "vpclmul"), *("asimd", "sve"))
_MEMBERS = {"abm", "adx", "bf16", "f16c", "fp", "fphp", "i8mm", "movbe", "pni", "popcnt"}


def instructions_of(cpuinfo: Path = _CPUINFO) -> list[str]:
    """Names of this machine's instruction sets, as Linux lists them, sorted.

    Raises:
        UnavailableError: it does not say.
    """
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    for line in text.splitlines():
        key, _, flags = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return sorted(
                {flag for flag in flags.split() if flag.startswith(_SETS) or flag in _MEMBERS}
            )
    raise UnavailableError(
        f"{cpuinfo}: expected a line 'flags' or 'Features', which says what the processor can do; "
        "got none"
    )


def target_of(instructions: list[str]) -> str:
    """A name for such a machine: ``x86_64-avx512``."""
    machine = platform.machine() or "cpu0"
    for kind, needed in (
        ("avx512_bf16", {"avx512f", "avx512_bf16"}),
        ("avx512", {"avx512f", "avx512bw", "avx512vl"}),
        ("avx2", {"avx2", "fma"}),
        ("sve", {"sve"}),
        ("asimd", {"asimd"}),
    ):
        if needed <= set(instructions):
            return f"{machine}-{kind}"
    return machine
