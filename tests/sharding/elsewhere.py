"""A stand-in for a CUDA device: tensors that mix with those of the CPU as little as CUDA's do.

An ``Elsewhere`` wraps a tensor of the CPU and says that it lies on device ``lazy``. Operators run
on what it wraps. As on CUDA, an operator that gets tensors of both devices raises, apart from
copies, indices and numbers. ``host_reads`` holds what would make a host wait for its device.
"""

from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch.utils._pytree import tree_map_only

from embershard.kernels import fused

DEVICE = torch.device("lazy", 0)
ATEN = torch.ops.aten
OF_BOTH = (ATEN.copy_.default, ATEN._to_copy.default, ATEN.index.Tensor, ATEN.index_put_.default)
SIZED_BY_DATA = (
    ATEN._local_scalar_dense.default,
    ATEN.bincount.default,
    ATEN.masked_select.default,
    ATEN.nonzero.default,
    ATEN.repeat_interleave.Tensor,
)
host_reads = []
"""Operators, of this process."""


class Elsewhere(torch.Tensor):
    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=DEVICE,
        )

    def __init__(self, held):
        self.held = held

    def __repr__(self):
        return f"Elsewhere({self.held})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in SIZED_BY_DATA and kwargs.get("output_size") is None:
            host_reads.append(func)
        if func is ATEN.index.Tensor and any(_is_mask(value) for value in args[1]):
            host_reads.append(func)
        arguments = []
        tree_map_only(torch.Tensor, arguments.append, (args, kwargs))
        ours = {id(value.held): value for value in arguments if isinstance(value, Elsewhere)}
        if func not in OF_BOTH:
            strangers = [e for e in arguments if not isinstance(e, Elsewhere) and e.dim()]
            assert not strangers, f"{func}: expected tensors of one device, got those of two"
        to = kwargs.get("device")
        if to is not None:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        args, kwargs = tree_map_only(Elsewhere, lambda value: value.held, (args, kwargs))
        result = func(*args, **kwargs)
        if to is not None and to.type == "cpu":
            host_reads.append(func)
            return result

        def wrapped(item):
            return ours[id(item)] if id(item) in ours else Elsewhere(item)

        return tree_map_only(torch.Tensor, wrapped, result)


def _is_mask(index):
    return index is not None and index.dtype == torch.bool


def _making(function):
    """A function of torch that also makes tensors for DEVICE, which torch itself cannot."""

    def made(*args, requires_grad=False, **kwargs):
        if kwargs.get("device") != DEVICE:
            return function(*args, requires_grad=requires_grad, **kwargs)
        held = function(*args, **{**kwargs, "device": "cpu"})
        return Elsewhere(held).requires_grad_(requires_grad)

    return made


def _moving(to):
    def moved(tensor, *args, **kwargs):
        if DEVICE not in (*args, kwargs.get("device")):
            return to(tensor, *args, **kwargs)
        return tensor if isinstance(tensor, Elsewhere) else Elsewhere(tensor.clone())

    return moved


class _Kernel:
    """FBGEMM's, which trains tables in its backward pass: that of CUDA's calls, on CPU."""

    def __init__(self, kernel):
        self.kernel = kernel
        self._anchor = Elsewhere(torch.zeros(0)).requires_grad_()

    def __call__(self, rows, offsets, per_sample_weights=None):
        return _Call.apply(self._anchor, per_sample_weights, rows, offsets, self.kernel)

    def split_embedding_weights(self):
        return [
            Elsewhere(split_embedding_weight.detach())
            for split_embedding_weight in self.kernel.split_embedding_weights()
        ]

    def split_optimizer_states(self):
        states = self.kernel.split_optimizer_states()
        return [tuple(Elsewhere(item.detach()) for item in of) for of in states]

    def set_learning_rate(self, rate):
        self.kernel.set_learning_rate(rate)


class _Call(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, weights, rows, offsets, kernel):
        ctx.weights = None
        if weights is not None:
            ctx.weights = weights.held.detach().requires_grad_(weights.requires_grad)
        with torch.enable_grad():
            ctx.found = kernel(rows.held, offsets.held, per_sample_weights=ctx.weights)
        return Elsewhere(ctx.found.detach())

    @staticmethod
    def backward(ctx, gradient):
        ctx.found.backward(gradient.held)
        of_weights = None if ctx.weights is None else ctx.weights.grad
        return None, None if of_weights is None else Elsewhere(of_weights), None, None, None


@contextmanager
def elsewhere(env):
    """A block in which fused tables may lie on DEVICE; the ranks with that device."""
    build = fused._build_kernel

    def build_elsewhere(*args, device, placement, **kwargs):
        assert (device, placement) == (DEVICE, "DEVICE")
        return _Kernel(build(*args, device=torch.device("cpu"), placement=placement, **kwargs))

    with pytest.MonkeyPatch.context() as patch:
        for name in ("arange", "empty", "ones", "tensor", "zeros"):
            patch.setattr(torch, name, _making(getattr(torch, name)))
        patch.setattr(torch.Tensor, "to", _moving(torch.Tensor.to))
        patch.setattr("embershard.sharding.model_parallel.checked_device", lambda device, _: device)
        patch.setattr(fused, "_build_kernel", build_elsewhere)
        host_reads.clear()
        yield replace(env, device=DEVICE)


def here(value):
    """With tensors of the CPU in place of those elsewhere."""
    return tree_map_only(Elsewhere, lambda item: item.held, value)
