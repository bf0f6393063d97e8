"""Text of jagged and keyed tensors for ``str()`` and ``repr()``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from torch import Tensor

from embershard.errors import InputError

if TYPE_CHECKING:
    from embershard.jagged.jagged_tensor import JaggedTensor
    from embershard.jagged.keyed_jagged_tensor import KeyedJaggedTensor
    from embershard.jagged.keyed_tensor import KeyedTensor

SHOWN: Final = 20
"""Items shown of each list."""


def jagged_text(jagged: JaggedTensor) -> str:
    """Contents as ``JaggedTensor([[1, 2], [], [3]])``. Waits for the device. Falls back to ``repr``
    if the lengths contradict the values, or if tensors are meta or traced."""
    if not _has_contents(jagged.values()):
        return repr(jagged)
    try:
        return f"JaggedTensor({_lists(jagged)})"
    except InputError as fault:
        return f"{repr(jagged)[:-1]}, {fault})"


def keyed_jagged_repr(kjt: KeyedJaggedTensor) -> str:
    return (
        f"KeyedJaggedTensor(keys={kjt.keys()}, stride={kjt.stride()}, "
        f"values={kjt.values().dtype}{list(kjt.values().shape)}, "
        f"weighted={kjt.weights_or_none() is not None})"
    )


def keyed_jagged_text(kjt: KeyedJaggedTensor) -> str:
    """Lists of each key, one line a key. Falls back to ``repr`` like ``jagged_text``."""
    if not _has_contents(kjt.values()):
        return repr(kjt)
    try:
        parts = kjt.split([1] * len(kjt.keys()))  # By position, since keys may be repeated.
        features = [_lists(part[part.keys()[0]]) for part in parts]
    except InputError as fault:
        return f"{repr(kjt)[:-1]}, {fault})"
    return _lines("KeyedJaggedTensor", kjt.keys(), features)


def keyed_text(keyed: KeyedTensor) -> str:
    """Values of each key, one line a key. Falls back to ``repr`` like ``jagged_text``."""
    if not _has_contents(keyed.values()):
        return repr(keyed)
    parts = [_text(part) for part in keyed.to_dict().values()]
    return _lines("KeyedTensor", keyed.keys(), parts)


def _has_contents(tensor: Tensor) -> bool:
    return type(tensor) is Tensor and tensor.device.type != "meta"


def _lines(name: str, keys: list[str], contents: list[str]) -> str:
    lines = [f'    "{key}": {text},\n' for key, text in zip(keys, contents, strict=True)]
    return f"{name}({{\n{''.join(lines)}}})"


def _lists(jagged: JaggedTensor) -> str:
    values = _text(jagged.to_dense())
    if jagged.weights_or_none() is None:
        return values
    return f'{{"values": {values}, "weights": {_text(jagged.to_dense_weights())}}}'


def _text(item: Tensor | list[Tensor]) -> str:
    if isinstance(item, Tensor) and item.dim() == 0:
        value = item.item()
        return f"{value:.6g}" if isinstance(value, float) else str(value)
    texts = [_text(part) for part in item[:SHOWN]]
    if len(item) > SHOWN:
        texts.append(f"... {len(item)} in all")
    return f"[{', '.join(texts)}]"
