"""``device_of``: which device a caller means."""

import torch

from embershard.errors import InputError


def device_of(device: torch.device | str) -> torch.device:
    """The device, if torch sees it. Raises InputError if it is neither cpu nor cuda, or CUDA where
    there is none."""
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InputError(f"device: expected cpu or cuda, got {device!r}") from error
    if found.type not in ("cpu", "cuda"):
        raise InputError(f"device: expected cpu or cuda, got {found}")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device: expected cpu, as torch sees no CUDA device, got {found}")
    return found
