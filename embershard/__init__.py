"""Train, export, serve and ask recommendation models with large embedding tables.

Names are imported when they are first used. A program that only uses :class:`Client` therefore
imports neither torch nor FBGEMM.
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
    from embershard.client import AsyncClient, Client, Lists, Prediction, Tls
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
    from embershard.package import (
        Bucketize,
        Clip,
        DenseInput,
        Hash,
        Identity,
        Log1p,
        Schema,
        SparseInput,
        Standardize,
        Vocabulary,
    )
    from embershard.serving import Server, ServerOptions
    from embershard.training import load_checkpoint

__all__ = [
    "DIN",
    "DLRM",
    "DLRM_DCN",
    "MLP",
    "AsyncClient",
    "Bucketize",
    "Client",
    "Clip",
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
    "Lists",
    "Log1p",
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
    "Standardize",
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
    "embershard.client": ("AsyncClient", "Client", "Lists", "Prediction", "Tls"),
    "embershard.export": ("export_model",),
    "embershard.jagged": ("JaggedTensor", "KeyedJaggedTensor", "KeyedTensor"),
    "embershard.models": ("DIN", "DLRM", "DLRM_DCN", "LogitModel", "TwoTower"),
    "embershard.modules": (
        "MLP",
        "DataType",
        "EmbeddingBagCollection",
        "EmbeddingBagConfig",
        "EmbeddingCollection",
        "EmbeddingConfig",
        "FusedEmbeddingBagCollection",
        "FusedEmbeddingCollection",
        "PoolingType",
        "to_examples",
    ),
    "embershard.package": (
        "Bucketize",
        "Clip",
        "DenseInput",
        "Hash",
        "Identity",
        "Log1p",
        "Schema",
        "SparseInput",
        "Standardize",
        "Vocabulary",
    ),
    "embershard.serving": ("Server", "ServerOptions"),
    "embershard.training": ("load_checkpoint",),
}

if not TYPE_CHECKING:  # With this function, a type checker would accept any name.

    def __getattr__(name: str) -> object:
        for home, names in _HOMES.items():
            if name in names:
                return getattr(import_module(home), name)
        raise AttributeError(f"module 'embershard' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
