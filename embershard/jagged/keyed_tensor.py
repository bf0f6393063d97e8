"""``KeyedTensor``, which TorchScript compiles, since dense programs may contain it."""

# TorchScript cannot resolve torch.device in postponed annotations.

from typing import Any

import torch
from torch import Tensor

from embershard.errors import InputError, MissingKeyError
from embershard.jagged.checks import keyed_fault, keys_fault
from embershard.jagged.pytrees import TraceableMeta, register_pytree
from embershard.jagged.segments import places_of, running_sums
from embershard.jagged.text import keyed_text


class KeyedTensor(metaclass=TraceableMeta):
    """F named parts of one tensor, side by side along ``key_dim``.

        keys            ["user", "item"]
        length_per_key  [2, 3]
        values          [[u0, u1, i0, i1, i2],     [B, 5], one row an example
                         [u0, u1, i0, i1, i2]]

    Works in TorchScript, in torch.fx traces and as a torch pytree. The tensor is not copied.

    Args:
        keys: F distinct names.
        length_per_key: width of each key along ``key_dim``.
        values: any dtype, [B, sum of the widths] if ``key_dim`` is 1.
        key_dim: dimension of ``values`` that the keys share, counted from 0.

    Raises:
        InputError: a repeated key, or widths that contradict keys or values.
    """

    def __init__(
        self, keys: list[str], length_per_key: list[int], values: Tensor, key_dim: int = 1
    ) -> None:
        names = list(keys)
        widths = list(length_per_key)
        fault = keyed_fault(names, widths, values, key_dim)
        if fault != "":
            raise InputError(f"KeyedTensor {fault}")
        self._keys: list[str] = names
        self._length_per_key: list[int] = widths
        self._values: Tensor = values
        self._key_dim: int = key_dim
        # TorchScript reads an attribute's type from the type of a variable, not from None.
        places: dict[str, tuple[int, int]] | None = None
        self._places: dict[str, tuple[int, int]] | None = places

    @staticmethod
    def from_tensor_list(keys: list[str], tensors: list[Tensor], key_dim: int = 1) -> "KeyedTensor":
        """Concatenate one tensor for each key along ``key_dim``. Raises InputError for no tensors,
        or not as many tensors as keys."""
        return _from_tensor_list(keys, tensors, key_dim)

    def keys(self) -> list[str]:
        """The F names. Do not change the list."""
        return self._keys

    def values(self) -> Tensor:
        return self._values

    def key_dim(self) -> int:
        return self._key_dim

    def device(self) -> torch.device:
        return self._values.device

    def length_per_key(self) -> list[int]:
        """Width of each key. Do not change the list."""
        return self._length_per_key

    def offset_per_key(self) -> list[int]:
        """First position of each key along ``key_dim``, and the total: F + 1 numbers."""
        return running_sums(self._length_per_key)

    def __getitem__(self, key: str) -> Tensor:
        """A view of one key. Raises MissingKeyError, which is a KeyError."""
        places = self._places
        if places is None:
            places = places_of(self._keys, self._length_per_key)
            self._places = places
        if key not in places:
            raise MissingKeyError(f"feature '{key}': expected one of {self._keys}")
        start, width = places[key]
        return self._values.narrow(self._key_dim, start, width)

    def to_dict(self) -> dict[str, Tensor]:
        parts: dict[str, Tensor] = {}
        start = 0
        for index, name in enumerate(self._keys):
            width = self._length_per_key[index]
            parts[name] = self._values.narrow(self._key_dim, start, width)
            start += width
        return parts

    @staticmethod
    def regroup(keyed_tensors: list["KeyedTensor"], groups: list[list[str]]) -> list[Tensor]:
        """Concatenate the keys of each group along the key dimension, which is equal for all
        tensors. No key occurs in two tensors. A group has at least one key; a key may be in several
        groups. Raises InputError for other tensors or groups, or an unknown key."""
        tensors = regroup_keyed(keyed_tensors, groups)
        return [tensors[i] for i in range(len(groups))]  # A list also in a torch.fx trace.

    @staticmethod
    def regroup_as_dict(
        keyed_tensors: list["KeyedTensor"], groups: list[list[str]], keys: list[str]
    ) -> dict[str, Tensor]:
        """``regroup``, with a name for each group. Raises InputError also for a wrong number of
        names, or a repeated one."""
        fault = keys_fault(keys)
        if fault == "" and len(keys) != len(groups):
            fault = f"keys: expected {len(groups)}, one a group, got {len(keys)}"
        if fault != "":
            raise InputError(f"regroup_as_dict {fault}")
        tensors = KeyedTensor.regroup(keyed_tensors, groups)
        named: dict[str, Tensor] = {}
        for index, key in enumerate(keys):
            named[key] = tensors[index]
        return named

    def to(self, device: torch.device, non_blocking: bool = False) -> "KeyedTensor":
        """A copy on ``device``. A tensor that is there already is shared."""
        values = self._values.to(device, non_blocking=non_blocking)
        return KeyedTensor(self._keys, self._length_per_key, values, self._key_dim)

    @torch.jit.unused
    def record_stream(self, stream: torch.Stream) -> None:
        """Keep the tensor's memory until ``stream`` has done the work that is queued on it now."""
        self._values.record_stream(stream)

    @torch.jit.unused
    def __repr__(self) -> str:
        widths = dict(zip(self._keys, self._length_per_key, strict=True))
        return (
            f"KeyedTensor({widths}, key_dim={self._key_dim}, "
            f"values={self._values.dtype}{list(self._values.shape)})"
        )

    @torch.jit.unused
    def __str__(self) -> str:
        return keyed_text(self)


# In a torch.fx trace a list of tensors is a list of proxies, so each function is wrapped as one
# node.


@torch.fx.wrap
def _from_tensor_list(keys: list[str], tensors: list[Tensor], key_dim: int) -> KeyedTensor:
    if len(tensors) == 0 or len(tensors) != len(keys):
        raise InputError(
            f"from_tensor_list: expected one tensor for each of {len(keys)} keys, at least one, "
            f"got {len(tensors)}"
        )
    for position, tensor in enumerate(tensors):
        if key_dim < 0 or key_dim >= tensor.dim():
            raise InputError(
                f"feature '{keys[position]}': expected a tensor with dimension {key_dim}, "
                f"got shape {list(tensor.shape)}"
            )
    widths = [tensor.size(key_dim) for tensor in tensors]
    return KeyedTensor(keys, widths, torch.cat(tensors, dim=key_dim), key_dim)


@torch.fx.wrap
def regroup_keyed(keyed_tensors: list[KeyedTensor], groups: list[list[str]]) -> list[Tensor]:
    """``KeyedTensor.regroup``, one node of a trace."""
    if len(keyed_tensors) == 0:
        raise InputError("regroup: expected at least 1 KeyedTensor, got 0")
    key_dim = keyed_tensors[0].key_dim()
    parts: dict[str, Tensor] = {}
    for position, keyed in enumerate(keyed_tensors):
        if keyed.key_dim() != key_dim:
            raise InputError(
                f"regroup: expected key_dim {key_dim}, got {keyed.key_dim()} at {position}"
            )
        for key, part in keyed.to_dict().items():
            if key in parts:
                raise InputError(f"regroup: duplicate key '{key}' in {position}")
            parts[key] = part
    grouped: list[Tensor] = []
    for position, group in enumerate(groups):
        if len(group) == 0:
            raise InputError(f"regroup: expected at least 1 key in group {position}, got 0")
        members: list[Tensor] = []
        for key in group:
            if key not in parts:
                raise InputError(f"regroup: expected one of {list(parts.keys())}, got '{key}'")
            members.append(parts[key])
        grouped.append(torch.cat(members, dim=key_dim))
    return grouped


def _children(_: Any) -> tuple[str, ...]:
    return ("_values",)


register_pytree(
    KeyedTensor, _children, static=("_keys", "_length_per_key", "_key_dim"), optional=("_places",)
)
