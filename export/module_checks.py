"""Refuses modules that no package can hold, before they are traced and once their lookups are
known; says what of their tables the dense program holds."""

import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from embershard.errors import ExportError
from embershard.export.compared import close
from embershard.export.embeddings import EMBEDDING_MODULES, EmbeddingModule, half_tables
from embershard.formatting import megabytes_text
from embershard.modules import FeatureProcessedEmbeddingBagCollection

LOG = logging.getLogger(__name__)


def check_module(module: nn.Module) -> None:
    """Whether its tensors lie on cpu, of which dtype its parameters are, and what wraps its
    submodules."""
    _check_device(module)
    for path, each in module.named_modules():
        if isinstance(each, nn.DataParallel | nn.parallel.DistributedDataParallel):
            kind = type(each).__name__
            raise ExportError(
                f"{path or 'module'}: expected a module without nn.{kind}, got one in it; "
                f"write {path or 'module'}.module"
            )
        if isinstance(each, FeatureProcessedEmbeddingBagCollection):
            raise ExportError(
                f"{path or 'module'}: expected embedding collections without feature processors, "
                "got a FeatureProcessedEmbeddingBagCollection: packages hold no position weights"
            )
    halved = [f"{path}.{name}".lstrip(".") for path, name in half_tables(module)]
    for name, parameter in module.named_parameters():
        if name not in halved and parameter.dtype in (torch.bfloat16, torch.float16):
            raise ExportError(
                f"{name}: expected float32 parameters, got {parameter.dtype}; write module.float() "
                "before the export, and export_model(..., dense_dtype='bf16') for bfloat16 layers"
            )


def check_lookups(modules: Mapping[str, EmbeddingModule]) -> None:
    """Whether embedding modules, by path, give just what they look up: a server does not run their
    forward."""
    for path, module in modules.items():
        kind = next(each for each in EMBEDDING_MODULES if isinstance(module, each))
        name = kind.__name__
        if module._forward_pre_hooks:
            raise ExportError(
                f"{path}: expected {name} without forward pre-hooks, got "
                f"{_hook_name(module._forward_pre_hooks)}: a server reads the ids of a request as "
                "they are; change ids in the data, or by the id map of the schema's input"
            )
        own = ""
        if module._forward_hooks:
            own = f"the forward hook {_hook_name(module._forward_hooks)}"
        elif "forward" in vars(module) and not _is_of(kind, vars(module)["forward"]):
            own = "a forward that was assigned to the instance"
        elif type(module).forward is not kind.forward:
            own = f"{type(module).__name__}.forward"
        if own:
            raise ExportError(
                f"{path}: expected the forward of {name}, got {own}, which no package holds; move "
                f"what it does into your model's forward, after self.{path}(sparse)"
            )


def buffer_values(module: nn.Module) -> dict[str, Tensor]:
    """A copy of each buffer."""
    return {name: buffer.clone() for name, buffer in module.named_buffers()}


def check_buffers(module: nn.Module, before: Mapping[str, Tensor]) -> None:
    """Whether forward left alone the values of `buffer_values`, as a package does."""
    for name, now in module.named_buffers():
        value = before.get(name, now)
        # One of another shape is a cache that grew, such as of sines of positions.
        if now.shape == value.shape and not close(now, value, 0.0):
            raise ExportError(
                f"{name}: expected a buffer that forward leaves alone in eval mode, got one that "
                "it changes: a package holds no state; write it for training alone: "
                "if self.training: ..."
            )


def _is_of(kind: type[nn.Module], forward: Any) -> bool:
    """Whether it is the forward of a class, perhaps compiled."""
    plain = getattr(forward, "_torchdynamo_orig_callable", forward)
    return getattr(plain, "__func__", plain) is kind.forward


def warn_of_tables(tables: Mapping[str, Tensor], program: Any) -> None:
    """Say which tables a dense program holds as tensors, beside their rows in the package."""
    held = {each.data_ptr() for each in program.parameters()}
    for name, weight in tables.items():
        if weight.numel() and weight.data_ptr() in held:
            size = megabytes_text(weight.numel() * weight.element_size())
            LOG.warning(
                "table %r is read as a tensor in forward: %s MB of %s in the dense program",
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
