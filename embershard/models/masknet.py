"""MaskNet: blocks that multiply their input by a mask computed from the example's features.

Source: Wang et al., "MaskNet: Introducing Feature-Wise Multiplication to CTR Ranking Models by
Instance-Guided Mask", arXiv 2102.07619.

::

    features [B, W] --+-- mask: Linear, ReLU, Linear --+
                      |                                *-- Linear, LayerNorm --> [B, block]
    input ---- LayerNorm if it is the features --------+

    parallel: every block reads the features; their outputs stand side by side
    serial:   every block reads the output of the block before it
    then an MLP turns the outputs into logits [B, T]

The blocks are those of Twitter's ranker: one LayerNorm spans all features, and a block ends in its
LayerNorm. The paper normalizes each feature by itself, and ends a block in a ReLU.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.models.base import LogitModel, Loss, check_logits
from embershard.models.base_config import Layers, LogitLayers, NamedConfig
from embershard.modules import (
    MLP,
    EmbeddingBagConfig,
)
from embershard.modules.fused_embeddings import BagModule
from embershard.modules.tables import pooled_width
from embershard.package.schema import Schema


class MaskBlock(nn.Module):
    """One block.

    Args:
        in_features: width of the input.
        mask_in_features: W, width of the features that the mask is computed from.
        aggregation_size: width of the mask's hidden layer.
        output_size: width of the output.
        normalize_input: true if the input passes a LayerNorm first.
        device: device of the layers; torch's default if None.
    """

    def __init__(
        self,
        in_features: int,
        mask_in_features: int,
        aggregation_size: int,
        output_size: int,
        *,
        normalize_input: bool,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        self.input_norm = (
            nn.LayerNorm(in_features, device=device) if normalize_input else nn.Identity()
        )
        self.mask = MLP(
            mask_in_features, [aggregation_size, in_features], device=device, activate_last=False
        )
        self.hidden = nn.Linear(in_features, output_size, device=device)
        self.norm = nn.LayerNorm(output_size, device=device)

    def forward(self, input: Tensor, features: Tensor) -> Tensor:
        """``(B, in_features)`` and ``(B, W)`` to ``(B, output_size)``."""
        masked = self.input_norm(input) * self.mask(features)
        output: Tensor = self.norm(self.hidden(masked))
        return output


class MaskNet(LogitModel):
    """A ranker of blocks that multiply their input by a computed mask.

    Args:
        embedding_bag_collection: pooled features.
        dense_in_features: number of dense features. They should be about as large as 1.
        block_sizes: output width of each block, at least one.
        reduction_factor: width of a mask's hidden layer, as a multiple of W.
        parallel: true if every block reads the features; false if each reads the block before it.
        over_arch_layer_sizes: width of each layer above the blocks; the last must be T, the number
            of tasks.
        dense_device: device of the dense layers; torch's default if None.
        tasks: see `LogitModel`.

    Raises:
        InputError: sizes that do not fit together.
    """

    def __init__(
        self,
        embedding_bag_collection: BagModule,
        dense_in_features: int,
        block_sizes: Sequence[int],
        reduction_factor: float,
        parallel: bool,
        over_arch_layer_sizes: Sequence[int],
        dense_device: torch.device | str | None = None,
        tasks: Mapping[str, Loss] | None = None,
    ) -> None:
        super().__init__(tasks)
        check_logits(over_arch_layer_sizes, self.tasks)
        if not block_sizes or min(block_sizes) < 1 or reduction_factor <= 0:
            raise InputError(
                "MaskNet: expected block_sizes of at least one block, each at least 1, and a "
                f"reduction_factor above 0; got {list(block_sizes)} and {reduction_factor}"
            )
        self.embedding_bag_collection = embedding_bag_collection
        self.parallel = parallel
        width = dense_in_features + pooled_width(embedding_bag_collection.embedding_bag_configs())
        inputs = [width] * len(block_sizes) if parallel else [width, *block_sizes[:-1]]
        self.blocks = nn.ModuleList(
            MaskBlock(
                in_features,
                width,
                max(1, int(width * reduction_factor)),
                output_size,
                normalize_input=parallel or place == 0,
                device=dense_device,
            )
            for place, (in_features, output_size) in enumerate(
                zip(inputs, block_sizes, strict=True)
            )
        )
        self.over_arch = MLP(
            sum(block_sizes) if parallel else block_sizes[-1],
            over_arch_layer_sizes,
            device=dense_device,
            activate_last=False,
        )

    def forward(self, dense_features: Tensor, sparse_features: KeyedJaggedTensor) -> Tensor:
        """Logits ``(B, T)``; see `LogitModel`."""
        pooled = self.embedding_bag_collection(sparse_features).values()
        features = torch.cat([dense_features, pooled], dim=1)
        if self.parallel:
            output = torch.cat([block(features, features) for block in self.blocks], dim=1)
        else:
            output = features
            for block in self.blocks:
                output = block(output, features)
        logits: Tensor = self.over_arch(output)
        return logits


class MaskNetConfig(NamedConfig):
    """Settings of a MaskNet; the section ``[model]`` of a run's file."""

    model = MaskNet

    name: Literal["masknet"] = "masknet"
    """Name of the model."""

    block_layers: Layers = (64, 64, 64)
    """Output width of each block."""

    reduction_factor: Annotated[float, Field(gt=0, le=16)] = 1.0
    """Width of a mask's hidden layer, as a multiple of the width of all features."""

    parallel: bool = True
    """true: every block reads the features. false: each block reads the block before it."""

    over_layers: LogitLayers = (64, 32, 1)
    """Widths of the layers above the blocks. The last is 1."""

    def _constructor_arguments(
        self, tables: Sequence[EmbeddingBagConfig], schema: Schema
    ) -> dict[str, Any]:
        return {
            "dense_in_features": len(schema.dense),
            "block_sizes": list(self.block_layers),
            "reduction_factor": self.reduction_factor,
            "parallel": self.parallel,
            "over_arch_layer_sizes": list(self.over_layers),
        }
