"""Loops over batches: one step a call, and the inputs of the next steps on their way meanwhile.

    TrainPipelineBase         i: exchange, compute
    TrainPipelineSparseDist   i: compute        i + 1: ids sent        i + 2: sizes sent
    EvalPipelineSparseDist    the same without backward

Each batch begins with an exchange that also says whether a rank has one. So a bad batch, data that
raises, or data that ends on some ranks only is one error on every rank, at its own step.
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
    """A batch in flight."""

    source: Iterator[Any]
    batch: Any
    exchange: Exchange
    failure: InputError | None = None
    """What its step raises, on every rank."""


class _Pipeline(Generic[In, Out]):
    """The batches in flight: fetched, and their exchange begun, ahead of their step.

    Every rank does the same with the same steps: collectives match by their order.
    """

    _AHEAD: int
    """Steps whose exchange is begun ahead."""

    _is_drained = True
    """False: if the data has ended, the batch before the end is kept for the next source."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        custom_model_fwd: Callable[[In], tuple[Tensor, Out]] | None = None,
    ) -> None:
        parallel = [each for each in model.modules() if isinstance(each, DistributedModelParallel)]
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
        """Train the next batch, unless the model is in eval mode. Every rank calls it as often.

        Args:
            dataloader_iter: of batches; as many on every rank. Another one than in the last call
                begins when the batches in flight are done.

        Returns:
            The model's output.

        Raises:
            StopIteration: the data has ended, on every rank.
            InputError: the batch of some rank is bad, its data raised, or has ended while that of
                others has not: the same message on every rank. The next call takes the next batch.
                Or the model returned something else than the loss and the output.
        """
        losses, output = self._forward(dataloader_iter)
        if self._model.training:
            self._optimizer.zero_grad()
            torch.sum(losses, dim=0).backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
        return output

    def _forward(self, source: Iterator[In]) -> tuple[Tensor, Out]:
        """The loss and output of the next batch.

        Raises:
            StopIteration: the data of all ranks has ended.
            InputError: a bad batch, the same message on every rank; or the model returned no pair.
        """
        is_known = self._AHEAD > 0 and self._inputs.compare()
        with self._stream.entered(after_model=not self._queue):
            step, found = self._take(source, self._AHEAD if is_known else 0)
        self._stream.leave(step.batch, [part for each in found for part in each.tensors()])
        if is_known or not self._AHEAD:
            running = step.exchange.placed(found)
        else:
            running = self._inputs.observed({"batch": step.batch})
        trains = torch.is_grad_enabled() and self._model.training
        with running, torch.set_grad_enabled(trains):  # With it lookups count as training.
            returned: object = self._call(step.batch)
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            raise InputError(f"the model returned {_kind(returned)}; expected (loss, output)")
        return returned[0], returned[1]

    def _take(self, source: Iterator[Any], ahead: int) -> tuple[_Step, list[Incoming]]:
        """The next step, and what the collections look up in it."""
        while True:
            self._fill(source, 1 + min(ahead, 1))
            step = self._queue[0]
            self._send(step)
            if not step.exchange.dist.is_end:
                break
            if step.source is source:
                self._stop()
            self._queue.popleft()  # The caller has gone on to other data.
        found = step.exchange.dist.finish()
        self._stream.mark()  # The model does not wait for the inputs of the steps that follow.
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
        return step, found

    def _fill(self, source: Iterator[Any], count: int) -> None:
        while len(self._queue) < count:
            batch, is_end = None, self._exhausted is source
            failure: Exception | None = None
            if not is_end:
                try:
                    batch = self._stream.moved(next(source))
                except StopIteration:
                    self._exhausted, is_end = source, True
                except Exception as error:  # Told to all ranks, which wait for this one.
                    failure = error
            exchange = self._inputs.start({"batch": batch}, failure=failure, is_end=is_end)
            self._queue.append(_Step(source, batch, exchange))

    def _send(self, step: _Step) -> None:
        try:
            step.exchange.dist.send()
        except InputError as error:
            step.failure = error

    def _stop(self) -> None:
        """The data of all ranks has ended; steps after the end have none."""
        for step in self._queue:
            self._send(step)
        self._queue.clear()
        raise StopIteration


def _kind(value: object) -> str:
    """What a model returned, for messages."""
    if isinstance(value, Tensor):
        return f"a Tensor of shape {list(value.shape)}"
    name = type(value).__name__
    return f"a {name} of {len(value)}" if isinstance(value, tuple | list) else f"a {name}"


@final
class TrainPipelineBase(_Pipeline[In, Out]):
    """Trains a batch a call, one after the other.

    Args:
        model: a ``DistributedModelParallel``, or a module with one in it. Its forward takes a
            batch and returns the loss and the output. In eval mode only forward runs.
        optimizer: of its parameters.
        device: of the model. On CUDA batches are copied to it, those with ``record_stream`` and
            ``to`` and tensors, in lists, tuples and dictionaries.
        custom_model_fwd: called with the batch in place of the model.

    Raises:
        InputError: no such model or device.
    """

    _AHEAD = 0


@final
class TrainPipelineSparseDist(_Pipeline[In, Out]):
    """As ``TrainPipelineBase``, with the same results bit for bit, while the inputs of the next two
    batches are exchanged.

    During the computation of batch i the ids of batch i + 1 and the sizes of batch i + 2 are on
    their way. The first batch is not overlapped: it shows where in a batch each collection's input
    is. A collection whose input is computed by the model exchanges it during its own step.

    Args:
        execute_all_batches: False: the batch before the end of the data is kept, and is first with
            the next ``dataloader_iter``.

    Raises:
        InputError: as ``TrainPipelineBase``.
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
        """The model, for steps outside the pipeline. It is the one that was given, unchanged;
        batches in flight are kept."""
        return self._model

    def attach(self, model: nn.Module | None = None) -> None:
        """Go on after ``detach``, as in TorchRec; needed for nothing here.

        Raises:
            InputError: another model.
        """
        if model not in (None, self._model):
            raise InputError("model: expected None or the pipeline's own, got another")


@final
class EvalPipelineSparseDist(_Pipeline[In, Out]):
    """As ``TrainPipelineSparseDist``, without gradients: nothing is trained. ``optimizer`` is not
    used and may be None."""

    _AHEAD = 2

    def __init__(self, model: nn.Module, optimizer: Any, device: torch.device) -> None:
        super().__init__(model, optimizer, device)

    def progress(self, dataloader_iter: Iterator[In]) -> Out:
        """Evaluate the next batch; see ``TrainPipelineBase.progress``."""
        with torch.no_grad():
            return self._forward(dataloader_iter)[1]
