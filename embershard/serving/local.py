"""A package in this process, without a port: for tests, checks and offline scoring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from embershard.errors import EmbershardError, PackageError
from embershard.serving._native import fbgemm_folder, load_extension
from embershard.serving.options import TableResidency
from embershard.serving.repository import DenseProgram

if TYPE_CHECKING:  # A server has its signals blocked before numpy starts threads.
    import numpy as np
    from numpy.typing import NDArray

    from embershard.package import SampleRequest

PARTS = ("request_dense", "example_dense", "lengths", "values", "weights")
"""Of a request, in the order in which the extension takes them."""


class LocalPrediction(NamedTuple):
    """The answer to one request of N examples."""

    outputs: Mapping[str, NDArray[np.float32]]
    """By name: ``[N, *shape]``, or ``[1, *shape]`` in request scope."""

    unknown_ids: Mapping[str, int]
    """How many of the ids of a feature are unknown. Features without such are left out."""


class LocalPredictor:
    """Runs requests through the validation, the batch executor and the model of the server.

    Any thread may call; calls run one at a time. Not for children that were forked after it was
    made: they have none of its threads.

    ::

        from embershard.serving import LocalPredictor

        local = LocalPredictor("repository/ranker/1")
        request = local.request(
            dense={"hour": 0.5, "price": [1.0, 2.0]},
            sparse={"user": ["u-81"], "item": [[1101], [99]]},
        )
        [answer] = local.predict_merged([request])
        if isinstance(answer, Exception):  # This request is refused; others are answered.
            raise answer
        assert answer.outputs["score"].shape == (2,)
        assert answer.unknown_ids == {"item": 1}
    """

    def __init__(
        self,
        package: str | Path,
        *,
        plan: str = "",
        dense_program: str = "",
        tables: TableResidency = "mmap",
        half_transfers: bool = False,
        threads: int = 0,
        slots: int = 0,
    ) -> None:
        """
        Args:
            package: folder of one version.
            plan, dense_program, tables, half_transfers, threads, slots: as in
                :class:`ServerOptions`.

        Raises:
            PackageError: the package is damaged, or its samples give other scores.
            PlanError: the plan is for devices that are not served here.
        """
        if not any((Path(package) / f"manifest.{end}").exists() for end in ("sha256", "json")):
            raise PackageError(
                f"{package}: expected the folder of one version, <repository>/<model>/<version>, "
                "got no manifest.sha256 in it"
            )
        self._native = load_extension().LocalPredictor(
            folder=str(package),
            fbgemm_folder=fbgemm_folder(),
            plan=plan,
            dense_program=dense_program,
            tables=tables,
            half_transfers=half_transfers,
            threads=threads,
            slots=slots,
        )

    def get_model(self) -> bytes:
        """A serialized ``GetModelResponse``."""
        return bytes(self._native.get_model())

    @property
    def program(self) -> DenseProgram:
        """Which dense program it runs, and why."""
        return DenseProgram(**self._native.program())

    def request(
        self,
        *,
        dense: object | None = None,
        sparse: Mapping[str, object] | None = None,
        weights: Mapping[str, object] | None = None,
        num_examples: int | None = None,
    ) -> SampleRequest:
        """A request for :meth:`predict_merged`.

        Args:
            dense, sparse, weights, num_examples: as :meth:`embershard.Client.predict` takes them.

        Raises:
            RequestError: an input is unknown, missing or of the wrong size.
        """
        import numpy as np

        from embershard._proto import predictor_pb2 as pb
        from embershard.client.packing import Inputs, pack
        from embershard.client.prediction import served_model
        from embershard.package import SampleRequest

        model = served_model(pb.GetModelResponse.FromString(self.get_model()))
        packed = pb.Packed()
        inputs = Inputs(dense=dense, sparse=sparse, weights=weights, num_examples=num_examples)
        count = pack(model, inputs, packed)
        columns = sum(each.scope == "example" for each in model.dense)
        return SampleRequest(
            num_examples=count,
            request_dense=np.frombuffer(packed.request_dense, "<f4"),
            example_dense=np.frombuffer(packed.example_dense, "<f4").reshape(count, columns),
            lengths=np.frombuffer(packed.lengths, "<i4"),
            values=np.frombuffer(packed.values, "<i8"),
            weights=np.frombuffer(packed.weights, "<f4"),
            outputs={},
        )

    def predict_merged(
        self, requests: Sequence[SampleRequest], outputs: Sequence[str] = ()
    ) -> list[LocalPrediction | EmbershardError]:
        """Run requests merged: in shares, one for each slot, up to 16 examples in one.

        Args:
            requests: their arrays are read in place and must not change meanwhile; ``outputs`` of
                a request is not read. A share runs in batches of at most 256 examples (one slot:
                1024).
            outputs: names of those wanted. Empty: all.

        Returns:
            For each request its prediction, or why it was refused.

        Raises:
            NotFoundError: an output is unknown.
            InputError: ``requests`` is no sequence of ``SampleRequest``.
        """
        import numpy as np

        from embershard.package.samples import check_are_samples

        check_are_samples("requests", requests)
        arrays = [
            (each.num_examples, *(np.ascontiguousarray(getattr(each, part)) for part in PARTS))
            for each in requests
        ]
        answers = self._native.predict_merged(arrays, list(outputs))
        return [
            LocalPrediction(*answer) if isinstance(answer, tuple) else answer for answer in answers
        ]


def lookup_seconds(
    rows: NDArray[np.uint8],
    ids: NDArray[np.int64],
    offsets: NDArray[np.int64],
    *,
    weights: str,
    dim: int,
) -> list[float]:
    """CPU time of each batch of lookups in one table, on this thread, with the server's kernels.
    ``rows``: ``[rows, row_bytes]``, stored as in a package. ``ids``: ``[batches, ids]``: row
    numbers. ``offsets``: ``[bags + 1]``, of every batch; first 0, last ``ids``."""
    import numpy as np

    assert ids.shape[1] == offsets[-1] > 0
    found = load_extension().lookup_seconds(
        rows=np.ascontiguousarray(rows).reshape(-1),
        weights=weights,
        dim=dim,
        ids=np.ascontiguousarray(ids).reshape(-1),
        offsets=offsets,
    )
    return [float(each) for each in found]
