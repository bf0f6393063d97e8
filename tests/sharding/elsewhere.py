"""A stand-in for a CUDA device. As on CUDA, its tensors do not mix with those of the CPU.

An ``Elsewhere`` wraps a CPU tensor and claims to lie on device ``lazy``. Operators run on the
wrapped tensor. An operator that gets tensors of both devices raises, except for copies, indices and
numbers. ``host_reads`` collects the operators that would make the host wait for the device.
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
"""Operators that ran in this process and would have read on the host."""


class Elsewhere(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
        )

    def __init__(self, inner):
        self.inner = inner

    def __repr__(self):
        return f"Elsewhere({self.inner})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in SIZED_BY_DATA and kwargs.get("output_size") is None:
            host_reads.append(func)
        if func is ATEN.index.Tensor and any(_is_mask(index) for index in args[1]):
            host_reads.append(func)
        arguments = []
        tree_map_only(torch.Tensor, arguments.append, (args, kwargs))
        wrappers = {
            id(tensor.inner): tensor for tensor in arguments if isinstance(tensor, Elsewhere)
        }
        if func not in OF_BOTH:
            cpu_tensors = [
                tensor for tensor in arguments if not isinstance(tensor, Elsewhere) and tensor.dim()
            ]
            assert not cpu_tensors, f"{func}: expected tensors of one device, got those of two"
        to = kwargs.get("device")
        if to is not None:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        args, kwargs = tree_map_only(Elsewhere, lambda tensor: tensor.inner, (args, kwargs))
        result = func(*args, **kwargs)
        if to is not None and to.type == "cpu":
            host_reads.append(func)
            return result

        def wrapped(tensor):
            return wrappers[id(tensor)] if id(tensor) in wrappers else Elsewhere(tensor)

        return tree_map_only(torch.Tensor, wrapped, result)


def _is_mask(index):
    return index is not None and index.dtype == torch.bool


def _making(function):
    """Wraps a function of torch so that it also makes tensors on DEVICE, which torch itself
    cannot."""

    def made(*args, requires_grad=False, **kwargs):
        if kwargs.get("device") != DEVICE:
            return function(*args, requires_grad=requires_grad, **kwargs)
        inner = function(*args, **{**kwargs, "device": "cpu"})
        return Elsewhere(inner).requires_grad_(requires_grad)

    return made


def _moving(to):
    def moved(tensor, *args, **kwargs):
        if DEVICE not in (*args, kwargs.get("device")):
            return to(tensor, *args, **kwargs)
        return tensor if isinstance(tensor, Elsewhere) else Elsewhere(tensor.clone())

    return moved


class _Kernel:
    """Wraps FBGEMM's kernel, which trains tables in its backward pass. Tensors lie on DEVICE, and
    the kernel runs on CPU."""

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
        return [tuple(Elsewhere(tensor.detach()) for tensor in state) for state in states]

    def set_learning_rate(self, rate):
        self.kernel.set_learning_rate(rate)


class _Call(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, weights, rows, offsets, kernel):
        ctx.weights = None
        if weights is not None:
            ctx.weights = weights.inner.detach().requires_grad_(weights.requires_grad)
        with torch.enable_grad():
            ctx.output = kernel(rows.inner, offsets.inner, per_sample_weights=ctx.weights)
        return Elsewhere(ctx.output.detach())

    @staticmethod
    def backward(ctx, gradient):
        ctx.output.backward(gradient.inner)
        of_weights = None if ctx.weights is None else ctx.weights.grad
        return None, None if of_weights is None else Elsewhere(of_weights), None, None, None


@contextmanager
def elsewhere(env):
    """Lets fused tables lie on DEVICE within the block. Yields the ranks with that device."""
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


def to_cpu(value):
    """Replaces tensors on DEVICE by their CPU tensors."""
    return tree_map_only(Elsewhere, lambda tensor: tensor.inner, value)
