"""The package format, which training exports and serving loads. Imports no torch."""

from embershard.ids import hash_string
from embershard.package.additions import add_plan
from embershard.package.describe import describe_package
from embershard.package.id_maps import Hash, Identity, IdMap, Vocabulary
from embershard.package.input_specs import schema_from_json, schema_to_json, vocabulary_files
from embershard.package.manifest import Manifest, default_limits
from embershard.package.placement import STRATEGIES, ids_of_tables, make_plan
from embershard.package.plan import Plan, parse_devices, place_tables
from embershard.package.reader import Package, verify_package
from embershard.package.row_format import RowFormat
from embershard.package.safetensors_file import read_vocabulary, write_vocabulary
from embershard.package.samples import SampleRequest, read_samples, write_samples
from embershard.package.schema import DenseInput, Schema, SparseInput
from embershard.package.signature import check_signature, sign_package
from embershard.package.transforms import Bucketize, Clip, Log1p, Standardize, Transform
from embershard.package.writer import PackageContents, PackageWriter

__all__ = [
    "STRATEGIES",
    "Bucketize",
    "Clip",
    "DenseInput",
    "Hash",
    "IdMap",
    "Identity",
    "Log1p",
    "Manifest",
    "Package",
    "PackageContents",
    "PackageWriter",
    "Plan",
    "RowFormat",
    "SampleRequest",
    "Schema",
    "SparseInput",
    "Standardize",
    "Transform",
    "Vocabulary",
    "add_plan",
    "check_signature",
    "default_limits",
    "describe_package",
    "hash_string",
    "ids_of_tables",
    "make_plan",
    "parse_devices",
    "place_tables",
    "read_samples",
    "read_vocabulary",
    "schema_from_json",
    "schema_to_json",
    "sign_package",
    "verify_package",
    "vocabulary_files",
    "write_samples",
    "write_vocabulary",
]
