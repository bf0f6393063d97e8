"""Models ready to train, and the registry that builds them by name."""

from embershard.models.base import LogitModel, Score
from embershard.models.dlrm import DLRM, DenseArch, InteractionArch, OverArch, SparseArch
from embershard.models.dlrm_dcn import DLRM_DCN, InteractionDCNArch
from embershard.models.registry import ModelConfig, build_model, model_names

__all__ = [
    "DLRM",
    "DLRM_DCN",
    "DenseArch",
    "InteractionArch",
    "InteractionDCNArch",
    "LogitModel",
    "ModelConfig",
    "OverArch",
    "Score",
    "SparseArch",
    "build_model",
    "model_names",
]
