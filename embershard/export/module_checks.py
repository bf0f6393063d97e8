"""Refuses modules that cannot be exported, before and after tracing."""

import logging
import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from embershard.errors import ExportError
from embershard.export.comparison import close
from embershard.export.embeddings import EMBEDDING_MODULES, EmbeddingModule, half_tables
from embershard.export.tables import DIVERGED
from embershard.export.trace import refusal
from embershard.formatting import megabytes_text
from embershard.modules import FeatureProcessedEmbeddingBagCollection

LOG = logging.getLogger(__name__)


def check_module(module: nn.Module) -> None:
    """Refuse tensors on other devices than cpu, parameters of half precision or with NaN, and
    submodules that packages do not support."""
    _check_device(module)
    for path, part in module.named_modules():
        if isinstance(part, nn.DataParallel | nn.parallel.DistributedDataParallel):
            wrapper = type(part).__name__
            raise ExportError(
                f"{path or 'module'}: expected a module without a wrapper, got nn.{wrapper}; "
                f"write {path or 'module'}.module"
            )
        if isinstance(part, FeatureProcessedEmbeddingBagCollection):
            raise ExportError(
                f"{path or 'module'}: expected embedding collections without feature processors, "
                "got a FeatureProcessedEmbeddingBagCollection; packages have no position weights"
            )
        if kind := _torchrec_collection(part):
            raise ExportError(
                f"{path or 'module'}: expected embershard.{kind.__name__}, got {kind.__module__}."
                f"{kind.__name__}; write from embershard import {kind.__name__}, which has equal "
                "arguments and an equal state dict"
            )
    halved = [f"{path}.{name}".lstrip(".") for path, name in half_tables(module)]
    for name, parameter in module.named_parameters():
        if name not in halved and parameter.dtype in (torch.bfloat16, torch.float16):
            raise ExportError(
                f"{name}: expected float32 parameters, got {parameter.dtype}; write module.float() "
                "before the export, and export_model(..., dense_dtype='bf16') for bfloat16 layers"
            )
    _check_numbers(module)


def _torchrec_collection(module: nn.Module) -> type | None:
    """The class of a TorchRec collection for which we have a class of the same name, or None."""
    ours = {kind.__name__ for kind in EMBEDDING_MODULES}
    for kind in type(module).__mro__:
        if kind.__module__.startswith("torchrec.") and kind.__name__ in ours:
            return kind
    return None


def _check_numbers(module: nn.Module) -> None:
    """Refuse NaN in parameters. Tables, which may be large, are checked while they are written."""
    collections = [part for part in module.modules() if isinstance(part, EMBEDDING_MODULES)]
    tables = {id(weight) for collection in collections for weight in collection.parameters()}
    for name, parameter in module.named_parameters():
        if id(parameter) not in tables and bool(parameter.isnan().any()):
            raise ExportError(f"{name}: expected parameters without nan, got nan{DIVERGED}")


PLAIN_LOOKUPS = (nn.Embedding, nn.EmbeddingBag)


def check_plain_lookups(module: nn.Module, graph: fx.Graph, *, dense_too: bool) -> None:
    """Refuse an nn.Embedding or nn.EmbeddingBag that looks up ids of forward's sparse input, since
    a dense program gets no ids; if ``dense_too``, also layers that look up other values."""
    _, sparse = (node for node in graph.nodes if node.op == "placeholder")
    ids = {sparse: "<key>"}
    for node in graph.nodes:
        layer = module.get_submodule(str(node.target)) if node.op == "call_module" else None
        keys = [ids[source] for source in node.all_input_nodes if source in ids]
        if isinstance(layer, PLAIN_LOOKUPS) and (keys or dense_too):
            key = keys[0] if keys else "<key>"
            raise refusal(node, _collection_remedy(str(node.target), layer, key))
        if keys and node.target != "lengths" and not isinstance(layer, EMBEDDING_MODULES):
            item = node.args[1] if node.target is operator.getitem else None
            ids[node] = item if isinstance(item, str) else keys[0]


def _collection_remedy(path: str, layer: nn.Module, key: str) -> str:
    name, kind = path.replace(".", "_"), type(layer).__name__
    table = (
        f"name={name!r}, num_embeddings={layer.num_embeddings}, "
        f"embedding_dim={layer.embedding_dim}, feature_names=[{key!r}]"
    )
    collection, config, more = "EmbeddingBagCollection", "EmbeddingBagConfig", ""
    padded = ".to_padded_dense(10), where 10 is the largest number of ids in a list"
    if isinstance(layer, nn.Embedding):
        more = (
            f" for one id per example, with SparseInput({key!r}, ..., max_ids=1); write "
            f"EmbeddingCollection, EmbeddingConfig and {padded} for lists"
        )
    elif isinstance(layer, nn.EmbeddingBag) and layer.mode != "max":
        table += f", pooling=PoolingType.{layer.mode.upper()}"
    else:
        collection, config, more = "EmbeddingCollection", "EmbeddingConfig", padded
    return (
        f"expected an {collection} to look up ids, got the nn.{kind} {path!r}; write "
        f"self.{name} = {collection}([{config}({table})]) and self.{name}(sparse)[{key!r}]{more}"
    )


def check_lookups(modules: Mapping[str, EmbeddingModule]) -> None:
    """Refuse embedding modules that do more than look up: servers do not run their forward."""
    for path, module in modules.items():
        kind = next(kind for kind in EMBEDDING_MODULES if isinstance(module, kind))
        name = kind.__name__
        if module._forward_pre_hooks:
            raise ExportError(
                f"{path}: expected {name} without forward pre-hooks, got "
                f"{_hook_name(module._forward_pre_hooks)}, which a server does not run; change ids "
                "in the data, or by the id map of the schema's input"
            )
        other = ""
        if module._forward_hooks:
            other = f"the forward hook {_hook_name(module._forward_hooks)}"
        elif "forward" in vars(module) and not _is_forward_of(kind, vars(module)["forward"]):
            other = "a forward that was assigned to the instance"
        elif type(module).forward is not kind.forward:
            other = f"{type(module).__name__}.forward"
        if other:
            raise ExportError(
                f"{path}: expected the forward of {name}, got {other}, which a server does not "
                f"run; move its code into your model's forward, after self.{path}(sparse)"
            )


def buffer_values(module: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in module.named_buffers()}


def check_buffers(module: nn.Module, before: Mapping[str, Tensor]) -> None:
    """Refuse a forward that changed a buffer, since a server keeps no state between requests.
    ``before``: `buffer_values` before the forward."""
    for name, now in module.named_buffers():
        value = before.get(name, now)
        # A buffer of another shape is a cache that grew, for example of positions.
        if now.shape == value.shape and not close(now, value, 0.0):
            raise ExportError(
                f"{name}: expected a buffer that forward does not change in eval mode, got one "
                "that it changes; write if self.training: before the change, since a server keeps "
                "no state"
            )


def _is_forward_of(kind: type[nn.Module], forward: Any) -> bool:
    """True if ``forward`` is the forward of a class, or compiled from it."""
    plain = getattr(forward, "_torchdynamo_orig_callable", forward)
    return getattr(plain, "__func__", plain) is kind.forward


def warn_of_tables(tables: Mapping[str, Tensor], program: Any) -> None:
    """Warn of each table that forward also uses as a tensor. The dense program then contains a copy
    of the whole table, in addition to the rows in the package."""
    held = {parameter.data_ptr() for parameter in program.parameters()}
    for name, weight in tables.items():
        if weight.numel() and weight.data_ptr() in held:
            size = megabytes_text(weight.numel() * weight.element_size())
            LOG.warning(
                "table %r is used as a tensor in forward, which adds %s MB of %s to the dense "
                "program",
                name,
                size,
                "fp16" if weight.dtype == torch.float16 else "fp32",
            )


def _hook_name(hooks: Mapping[int, object]) -> str:
    hook = next(iter(hooks.values()))
    return getattr(hook, "__qualname__", type(hook).__name__)


def _check_device(module: nn.Module) -> None:
    for name, tensor in module.state_dict().items():
        if isinstance(tensor, Tensor) and tensor.device.type != "cpu":
            raise ExportError(
                f"{type(module).__name__}: {name}: expected a module on cpu, "
                f"got a tensor on {tensor.device}"
            )
