"""Weights of ids by their position in the bag, trained with the model."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, final, runtime_checkable

import torch
from torch import Tensor, nn

from embershard.errors import InputError
from embershard.jagged import JaggedTensor, KeyedJaggedTensor

POSITIONS_MAX = 1 << 24
"""Positions travel between ranks as float32, which counts exactly up to here."""


class FeatureProcessor(nn.Module, ABC):
    """Adds weights to the ids of one feature."""

    @abstractmethod
    def forward(self, features: JaggedTensor) -> JaggedTensor:
        """The same lists, with weights."""


class FeatureProcessorsCollection(nn.Module, ABC):
    """Adds weights to the ids of several features."""

    @abstractmethod
    def forward(self, features: KeyedJaggedTensor) -> KeyedJaggedTensor:
        """The same features, with weights."""


@runtime_checkable
class HasPositionWeights(Protocol):
    """Weights that depend on the position only. Sharded collections take no others."""

    def position_weights_of(self, feature: str) -> nn.Parameter | None:
        """The weights of a feature, ``(max_feature_length,)``, or None if it has none."""


@final
class PositionWeightedModule(FeatureProcessor):
    """Weights of ids by their position in the bag, in the parameter ``position_weight``.

    All weights are 1 at first.

    Args:
        max_feature_length: most ids of a bag, 1 .. 2**24.
        device: device of the parameter; torch's default if None.

    Raises:
        InputError: another length.
    """

    def __init__(self, max_feature_length: int, device: torch.device | str | None = None) -> None:
        super().__init__()
        self.position_weight = _new_weight("", max_feature_length, device)

    def forward(self, features: JaggedTensor) -> JaggedTensor:
        """The same lists with weights float32 ``(total,)`` in place of their former ones. Raises
        InputError for a bag of more ids than there are weights."""
        check_positions("", features.lengths(), len(self.position_weight))
        weights = self.position_weight[positions_of(features.lengths(), len(features.values()))]
        return JaggedTensor(features.values(), weights, features.lengths())

    def position_weights_of(self, feature: str) -> nn.Parameter:
        """``(max_feature_length,)``."""
        return self.position_weight

    def reset_parameters(self) -> None:
        nn.init.ones_(self.position_weight)


@final
class PositionWeightedModuleCollection(FeatureProcessorsCollection):
    """Position weights of several features; see ``PositionWeightedModule``. State dict keys are
    ``position_weights.<feature>``.

    Args:
        max_feature_lengths: most ids of a bag, 1 .. 2**24, by feature.
        device: device of the parameters; torch's default if None.

    Raises:
        InputError: another length, or a feature whose name torch's state dicts cannot hold.
    """

    def __init__(
        self,
        max_feature_lengths: Mapping[str, int],
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        check_names(max_feature_lengths)
        self.max_feature_lengths = dict(max_feature_lengths)
        self.position_weights = _Weights(
            {
                feature: _new_weight(f"feature {feature!r}: ", length, device)
                for feature, length in max_feature_lengths.items()
            }
        )

    def forward(self, features: KeyedJaggedTensor) -> KeyedJaggedTensor:
        """The same features with weights float32 ``(total,)`` in place of their former ones: 1 for
        features without position weights. Raises InputError for a bag of more ids than there are
        weights."""

        def weights_of(feature: str, jagged: JaggedTensor) -> Tensor | None:
            weight = self.position_weights_of(feature)
            if weight is None:
                return None
            check_positions(f"feature {feature!r}: ", jagged.lengths(), len(weight))
            return weight[positions_of(jagged.lengths(), len(jagged.values()))]

        return with_weights(features, weights_of)

    def position_weights_of(self, feature: str) -> nn.Parameter | None:
        """``(max_feature_lengths[feature],)``, or None for a feature without position weights."""
        return self.position_weights.get(feature)

    def reset_parameters(self) -> None:
        for weight in self.position_weights.parameters():
            nn.init.ones_(weight)


class _Weights(nn.Module):
    """Parameters by name. A ParameterDict would refuse features like ``keys``."""

    def __init__(self, weights: Mapping[str, nn.Parameter]) -> None:
        super().__init__()
        self._parameters.update(weights)

    def get(self, name: str) -> nn.Parameter | None:
        return self._parameters.get(name)


def check_names(features: Iterable[str]) -> None:
    """Refuse names that cannot be part of a key of torch's state dicts."""
    for feature in features:
        if "." in feature:
            raise InputError(
                f"feature {feature!r}: expected a name without '.' with a feature processor"
            )


def with_weights(
    features: KeyedJaggedTensor, weights_of: Callable[[str, JaggedTensor], Tensor | None]
) -> KeyedJaggedTensor:
    """The same features with other weights, ``(total,)``: 1 for features without weights."""
    parts = [torch.empty(0, device=features.device())]
    for feature, jagged in features.to_dict().items():
        weights = weights_of(feature, jagged)
        total = len(jagged.values())
        parts.append(torch.ones(total, device=features.device()) if weights is None else weights)
    is_variable = features.variable_stride_per_key()
    return KeyedJaggedTensor(
        features.keys(),
        features.values(),
        torch.cat(parts),
        features.lengths(),
        stride=features.stride(),
        length_per_key=features.length_per_key(),
        stride_per_key_per_rank=features.stride_per_key_per_rank() if is_variable else None,
        inverse_indices=features.inverse_indices_or_none(),
        repeated_keys=True,
    )


def positions_of(lengths: Tensor, total: int) -> Tensor:
    """Position of each id in its bag, int64 ``(total,)``. ``total`` is the sum of the lengths."""
    lengths = lengths.long()
    firsts = (lengths.cumsum(0) - lengths).repeat_interleave(lengths, output_size=total)
    return torch.arange(total, device=lengths.device) - firsts


def check_positions(where: str, lengths: Tensor, most: int) -> None:
    """Refuse bags with more ids than position weights."""
    if lengths.numel() and int(lengths.max()) > most:
        raise InputError(
            f"{where}expected at most {most} ids a bag, as many as position weights; got "
            f"{int(lengths.max())} in example {int(lengths.argmax())}"
        )


def _new_weight(where: str, length: int, device: torch.device | str | None) -> nn.Parameter:
    if not 1 <= length <= POSITIONS_MAX:
        raise InputError(f"{where}max_feature_length: expected 1 .. {POSITIONS_MAX}, got {length}")
    return nn.Parameter(torch.ones(length, device=device))
