"""Training loops with one step a call, which send the inputs of the next steps in the meantime.

    TrainPipelineBase         i: exchange, compute
    TrainPipelineSparseDist   i: compute        i + 1: ids sent        i + 2: sizes sent
    EvalPipelineSparseDist    the same without backward

Each batch begins with an exchange in which every rank says whether it has one. So if some rank's
batch is bad, or its data raises or ends early, that step fails with one error on every rank.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, final

import torch
from torch import Tensor, nn

from embershard.errors import InputError
from embershard.sharding.devices import InputStream
from embershard.sharding.incoming import Incoming
from embershard.sharding.model_inputs import Exchange, ModelInputs
from embershard.sharding.model_parallel import DistributedModelParallel

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(slots=True)
class _Step:
    source: Iterator[Any]
    batch: Any
    exchange: Exchange
    failure: InputError | None = None
    """Error of its step, on every rank."""


class _Pipeline(Generic[In, Out]):
    """A queue of batches that are fetched, and whose exchange is started, before their step.
    Collectives match by their order, so every rank makes the same calls."""

    _AHEAD: int
    """Number of steps whose exchange is started early."""

    _is_drained = True
    """False: at the end of the data, the last batch is kept for the next iterator."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        custom_model_fwd: Callable[[In], tuple[Tensor, Out]] | None = None,
    ) -> None:
        parallel = [
            submodule
            for submodule in model.modules()
            if isinstance(submodule, DistributedModelParallel)
        ]
        if len(parallel) != 1:
            raise InputError(
                f"model: expected one DistributedModelParallel in it, got {len(parallel)}"
            )
        env = parallel[0].env
        indices = {device.index, env.device.index} - {None}
        if device.type != env.device.type or len(indices) > 1:
            raise InputError(f"device: expected {str(env.device)!r}, got {str(device)!r}")
        self._stream = InputStream(env.device)
        self._inputs = ModelInputs(parallel[0].module, parallel[0].env)
        self._model, self._optimizer = model, optimizer
        self._call = model if custom_model_fwd is None else custom_model_fwd
        self._queue = deque[_Step]()
        self._exhausted: Iterator[Any] | None = None

    def progress(self, dataloader_iter: Iterator[In]) -> Out:
        """Train the next batch, or only run it if the model is in eval mode. Every rank calls this.

        Args:
            dataloader_iter: iterator of batches, equally many on every rank. A new iterator starts
                after the batches in flight.

        Returns:
            The model's output.

        Raises:
            StopIteration: the data has ended, on every rank.
            InputError: some rank's batch is bad, or its data raised or ended before that of others:
                the same message on every rank, and the next call takes the next batch. Or the model
                did not return a pair of loss and output.
        """
        losses, output = self._forward(dataloader_iter)
        if self._model.training:
            self._optimizer.zero_grad()
            torch.sum(losses, dim=0).backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
        return output

    def _forward(self, source: Iterator[In]) -> tuple[Tensor, Out]:
        """Loss and output of the next batch. For errors see ``progress``."""
        is_known = self._AHEAD > 0 and self._inputs.compare()
        with self._stream.entered(after_model=not self._queue):
            step, incoming = self._take(source, self._AHEAD if is_known else 0)
        self._stream.leave(
            step.batch, [part for collection in incoming for part in collection.tensors()]
        )
        if is_known or not self._AHEAD:
            running = step.exchange.placed(incoming)
        else:
            running = self._inputs.observed({"batch": step.batch})
        trains = torch.is_grad_enabled() and self._model.training
        # Lookups count as training if gradients are enabled.
        with running, torch.set_grad_enabled(trains):
            returned: object = self._call(step.batch)
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            raise InputError(f"the model returned {_kind(returned)}; expected (loss, output)")
        return returned[0], returned[1]

    def _take(self, source: Iterator[Any], ahead: int) -> tuple[_Step, list[Incoming]]:
        """The next step and its ids, one entry for each collection."""
        while True:
            self._fill(source, 1 + min(ahead, 1))
            step = self._queue[0]
            self._send(step)
            if not step.exchange.dist.is_end:
                break
            if step.source is source:
                self._stop()
            self._queue.popleft()  # The end of an iterator that the caller has replaced.
        incoming = step.exchange.dist.finish()
        self._stream.mark()  # The model need not wait for inputs of later steps.
        if ahead:
            following = self._queue[1]
            self._send(following)
            is_last = following.exchange.dist.is_end and following.source is source
            if is_last and not self._is_drained:
                raise StopIteration
            self._fill(source, 1 + ahead)
        self._queue.popleft()
        if step.failure is not None:
            raise step.failure
        return step, incoming

    def _fill(self, source: Iterator[Any], count: int) -> None:
        while len(self._queue) < count:
            batch, is_end = None, self._exhausted is source
            failure: Exception | None = None
            if not is_end:
                try:
                    batch = self._stream.moved(next(source))
                except StopIteration:
                    self._exhausted, is_end = source, True
                except Exception as error:  # Sent to all ranks, which wait for this one.
                    failure = error
            exchange = self._inputs.start({"batch": batch}, failure=failure, is_end=is_end)
            self._queue.append(_Step(source, batch, exchange))

    def _send(self, step: _Step) -> None:
        try:
            step.exchange.dist.send()
        except InputError as error:
            step.failure = error

    def _stop(self) -> None:
        for step in self._queue:
            self._send(step)
        self._queue.clear()
        raise StopIteration


def _kind(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a Tensor of shape {list(value.shape)}"
    name = type(value).__name__
    return f"a {name} of {len(value)}" if isinstance(value, tuple | list) else f"a {name}"


@final
class TrainPipelineBase(_Pipeline[In, Out]):
    """Trains one batch a call, without overlap.

    Args:
        model: a ``DistributedModelParallel``, or a module that contains one. Its forward takes a
            batch and returns loss and output. In eval mode only forward runs.
        optimizer: optimizer of its parameters.
        device: device of the model. On CUDA batches are copied to it: tensors and objects with
            ``to`` and ``record_stream``, in lists, tuples and dictionaries.
        custom_model_fwd: called with the batch in place of the model.

    Raises:
        InputError: no such model or device.
    """

    _AHEAD = 0


@final
class TrainPipelineSparseDist(_Pipeline[In, Out]):
    """``TrainPipelineBase`` that exchanges the inputs of the next two batches during a step.
    Results are bit-equal.

    While batch i is computed, the ids of batch i + 1 and the sizes of batch i + 2 are sent. The
    first batch is not overlapped, since it shows where in a batch each collection's input is. If
    the model computes a collection's input, that is exchanged in its own step.

    Args:
        execute_all_batches: False: at the end of the data, the last batch is kept and comes first
            with the next ``dataloader_iter``.
    """

    _AHEAD = 2

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        execute_all_batches: bool = True,
        *,
        custom_model_fwd: Callable[[In], tuple[Tensor, Out]] | None = None,
    ) -> None:
        super().__init__(model, optimizer, device, custom_model_fwd)
        self._is_drained = execute_all_batches

    def detach(self) -> nn.Module:
        """The model, unchanged, for steps outside the pipeline. Batches in flight are kept."""
        return self._model

    def attach(self, model: nn.Module | None = None) -> None:
        """Exists for TorchRec's API; continuing after ``detach`` needs no call. Raises InputError
        for another model."""
        if model not in (None, self._model):
            raise InputError("model: expected None or the pipeline's own, got another")


@final
class EvalPipelineSparseDist(_Pipeline[In, Out]):
    """``TrainPipelineSparseDist`` without gradients and training. ``optimizer`` may be None."""

    _AHEAD = 2

    def __init__(self, model: nn.Module, optimizer: Any, device: torch.device) -> None:
        super().__init__(model, optimizer, device)

    def progress(self, dataloader_iter: Iterator[In]) -> Out:
        with torch.no_grad():
            return self._forward(dataloader_iter)[1]
