import torch

from embershard.errors import InputError


def device_of(device: torch.device | str) -> torch.device:
    """Parse a device name. Raises InputError if it is neither cpu nor cuda, or torch sees no CUDA
    device."""
    try:
        parsed = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InputError(f"device: expected cpu or cuda, got {device!r}") from error
    if parsed.type not in ("cpu", "cuda"):
        raise InputError(f"device: expected cpu or cuda, got {parsed}")
    if parsed.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device: expected cpu, as torch sees no CUDA device, got {parsed}")
    return parsed
