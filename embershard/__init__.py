"""Train, export, serve and ask recommendation models with large embedding tables.

Names resolve when they are first used, so that a program which only asks a server
(:class:`Client`) pays for neither torch nor fbgemm.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from embershard.errors import (
    ConfigError,
    DataError,
    DeadlineError,
    EmbershardError,
    ExportError,
    InputError,
    InternalError,
    MissingKeyError,
    NotFoundError,
    OverloadedError,
    PackageError,
    RequestError,
    RetryError,
    UnauthenticatedError,
    UnavailableError,
)
from embershard.version import __version__

if TYPE_CHECKING:
    from embershard.client import AsyncClient, Client, Prediction, Tls
    from embershard.export import export_model
    from embershard.jagged import JaggedTensor, KeyedJaggedTensor, KeyedTensor
    from embershard.models import DIN, DLRM, DLRM_DCN, LogitModel, TwoTower
    from embershard.modules import (
        MLP,
        DataType,
        EmbeddingBagCollection,
        EmbeddingBagConfig,
        EmbeddingCollection,
        EmbeddingConfig,
        FusedEmbeddingBagCollection,
        FusedEmbeddingCollection,
        PoolingType,
        to_examples,
    )
    from embershard.package import DenseInput, Hash, Identity, Schema, SparseInput, Vocabulary
    from embershard.serving import Server, ServerOptions
    from embershard.training import load_checkpoint

__all__ = [
    "DIN",
    "DLRM",
    "DLRM_DCN",
    "MLP",
    "AsyncClient",
    "Client",
    "ConfigError",
    "DataError",
    "DataType",
    "DeadlineError",
    "DenseInput",
    "EmbeddingBagCollection",
    "EmbeddingBagConfig",
    "EmbeddingCollection",
    "EmbeddingConfig",
    "EmbershardError",
    "ExportError",
    "FusedEmbeddingBagCollection",
    "FusedEmbeddingCollection",
    "Hash",
    "Identity",
    "InputError",
    "InternalError",
    "JaggedTensor",
    "KeyedJaggedTensor",
    "KeyedTensor",
    "LogitModel",
    "MissingKeyError",
    "NotFoundError",
    "OverloadedError",
    "PackageError",
    "PoolingType",
    "Prediction",
    "RequestError",
    "RetryError",
    "Schema",
    "Server",
    "ServerOptions",
    "SparseInput",
    "Tls",
    "TwoTower",
    "UnauthenticatedError",
    "UnavailableError",
    "Vocabulary",
    "__version__",
    "export_model",
    "load_checkpoint",
    "to_examples",
]

_HOMES = {
    "AsyncClient": "embershard.client",
    "Client": "embershard.client",
    "DIN": "embershard.models",
    "DLRM": "embershard.models",
    "DLRM_DCN": "embershard.models",
    "DataType": "embershard.modules",
    "DenseInput": "embershard.package",
    "EmbeddingBagCollection": "embershard.modules",
    "EmbeddingBagConfig": "embershard.modules",
    "EmbeddingCollection": "embershard.modules",
    "EmbeddingConfig": "embershard.modules",
    "FusedEmbeddingBagCollection": "embershard.modules",
    "FusedEmbeddingCollection": "embershard.modules",
    "Hash": "embershard.package",
    "Identity": "embershard.package",
    "JaggedTensor": "embershard.jagged",
    "KeyedJaggedTensor": "embershard.jagged",
    "KeyedTensor": "embershard.jagged",
    "LogitModel": "embershard.models",
    "MLP": "embershard.modules",
    "PoolingType": "embershard.modules",
    "Prediction": "embershard.client",
    "Schema": "embershard.package",
    "Server": "embershard.serving",
    "ServerOptions": "embershard.serving",
    "SparseInput": "embershard.package",
    "Tls": "embershard.client",
    "TwoTower": "embershard.models",
    "Vocabulary": "embershard.package",
    "export_model": "embershard.export",
    "load_checkpoint": "embershard.training",
    "to_examples": "embershard.modules",
}

if not TYPE_CHECKING:  # A type checker would take it for a promise of every name.

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'embershard' has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
