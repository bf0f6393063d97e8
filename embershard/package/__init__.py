"""The package format: what training exports and serving loads. Imports no torch."""

from embershard.package.id_maps import Hash, Identity, IdMap, Vocabulary, hash_string
from embershard.package.manifest import Manifest, default_limits
from embershard.package.manifest_checks import parse_manifest
from embershard.package.row_format import RowFormat
from embershard.package.schema import DenseInput, Schema, SparseInput

__all__ = [
    "DenseInput",
    "Hash",
    "IdMap",
    "Identity",
    "Manifest",
    "RowFormat",
    "Schema",
    "SparseInput",
    "Vocabulary",
    "default_limits",
    "hash_string",
    "parse_manifest",
]
