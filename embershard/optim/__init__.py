"""Optimizers whose state is keyed by parameter name, and their wrappers. Names follow TorchRec."""

from embershard.optim.clipping import GradientClipping, GradientClippingOptimizer
from embershard.optim.keyed import (
    CombinedOptimizer,
    FusedKeyedOptimizer,
    KeyedOptimizer,
    KeyedOptimizerWrapper,
    OptimizerWrapper,
)
from embershard.optim.warmup import WarmupOptimizer, WarmupPolicy, WarmupStage

__all__ = [
    "CombinedOptimizer",
    "FusedKeyedOptimizer",
    "GradientClipping",
    "GradientClippingOptimizer",
    "KeyedOptimizer",
    "KeyedOptimizerWrapper",
    "OptimizerWrapper",
    "WarmupOptimizer",
    "WarmupPolicy",
    "WarmupStage",
]
