"""Models ready to train, and the registry that builds them by name."""

from embershard.models.base import LogitModel, Score
from embershard.models.configs import ClassConfig, DINConfig, DLRMConfig, TwoTowerConfig
from embershard.models.din import DIN, TargetAttention
from embershard.models.dlrm import DLRM, DLRM_DCN, DLRMTrain, InteractionDCNArch
from embershard.models.dlrm_parts import DenseArch, InteractionArch, OverArch, SparseArch
from embershard.models.registry import MODEL_CONFIGS, ModelConfig, build_model, model_names
from embershard.models.two_tower import ServedTwoTower, Tower, TwoTower

__all__ = [
    "DIN",
    "DLRM",
    "DLRM_DCN",
    "MODEL_CONFIGS",
    "ClassConfig",
    "DINConfig",
    "DLRMConfig",
    "DLRMTrain",
    "DenseArch",
    "InteractionArch",
    "InteractionDCNArch",
    "LogitModel",
    "ModelConfig",
    "OverArch",
    "Score",
    "ServedTwoTower",
    "SparseArch",
    "TargetAttention",
    "Tower",
    "TwoTower",
    "TwoTowerConfig",
    "build_model",
    "model_names",
]
