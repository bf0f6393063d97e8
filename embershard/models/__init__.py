"""Models ready to train, and the registry that builds them by name."""

from embershard.models.base import LogitModel, Score
from embershard.models.deepfm import DeepFMConfig, DeepFMRanker
from embershard.models.din import DIN, DINConfig, TargetAttention
from embershard.models.dlrm import DLRM, DLRMConfig, DLRMTrain
from embershard.models.dlrm_dcn import DLRM_DCN, DLRMDCNConfig, InteractionDCNArch
from embershard.models.dlrm_parts import DenseArch, InteractionArch, OverArch, SparseArch
from embershard.models.dmt import DMT, DMTConfig, TowerModule
from embershard.models.masknet import MaskBlock, MaskNet, MaskNetConfig
from embershard.models.own_class import ClassConfig
from embershard.models.ple import PLE, ExtractionLevel, PLEConfig
from embershard.models.registry import MODEL_CONFIGS, ModelConfig, build_model, model_names
from embershard.models.sasrec import CausalBlock, SASRec, SASRecConfig
from embershard.models.two_tower import ServedTwoTower, Tower, TwoTower, TwoTowerConfig

__all__ = [
    "DIN",
    "DLRM",
    "DLRM_DCN",
    "DMT",
    "MODEL_CONFIGS",
    "PLE",
    "CausalBlock",
    "ClassConfig",
    "DINConfig",
    "DLRMConfig",
    "DLRMDCNConfig",
    "DLRMTrain",
    "DMTConfig",
    "DeepFMConfig",
    "DeepFMRanker",
    "DenseArch",
    "ExtractionLevel",
    "InteractionArch",
    "InteractionDCNArch",
    "LogitModel",
    "MaskBlock",
    "MaskNet",
    "MaskNetConfig",
    "ModelConfig",
    "OverArch",
    "PLEConfig",
    "SASRec",
    "SASRecConfig",
    "Score",
    "ServedTwoTower",
    "SparseArch",
    "TargetAttention",
    "Tower",
    "TowerModule",
    "TwoTower",
    "TwoTowerConfig",
    "build_model",
    "model_names",
]
