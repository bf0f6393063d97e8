"""Runs a package in this process, without a port, for tests, checks and offline scoring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from embershard.errors import EmbershardError, PackageError
from embershard.serving._native import fbgemm_folder, load_extension
from embershard.serving.options import TableResidency
from embershard.serving.repository import DenseProgram

if TYPE_CHECKING:  # numpy starts threads, and a server must block signals before that.
    import numpy as np
    from numpy.typing import NDArray

    from embershard.package import SampleRequest

PARTS = ("request_dense", "example_dense", "lengths", "values", "weights")
"""Arrays of a request, in the order in which the extension takes them."""


class LocalPrediction(NamedTuple):
    """The answer to one request of N examples."""

    outputs: Mapping[str, NDArray[np.float32]]
    """Arrays by name, of shape ``[N, *shape]``, or ``[1, *shape]`` in request scope."""

    unknown_ids: Mapping[str, int]
    """Number of unknown ids by feature. Features without unknown ids are left out."""


class LocalPredictor:
    """Runs requests through the server's validation, batch executor and model.

    Thread-safe; calls run one at a time. It does not work in a child process that was forked after
    it was made, because its threads do not exist there.

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
            plan, dense_program, tables, half_transfers, threads, slots: see
                :class:`ServerOptions`.

        Raises:
            PackageError: the package is damaged, or its samples yield other scores.
            PlanError: the plan is for devices that this machine does not have.
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
        return bytes(self._native.get_model())

    @property
    def program(self) -> DenseProgram:
        """The dense program in use, and why it was chosen."""
        return DenseProgram(**self._native.program())

    def request(
        self,
        *,
        dense: object | None = None,
        sparse: Mapping[str, object] | None = None,
        weights: Mapping[str, object] | None = None,
        num_examples: int | None = None,
    ) -> SampleRequest:
        """Make a request for :meth:`predict_merged`.

        Args:
            dense, sparse, weights, num_examples: see :meth:`embershard.Client.predict`.

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
        columns = sum(column.scope == "example" for column in model.dense)
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
        """Run requests in merged batches.

        The requests are divided into one share per slot; up to 16 examples form a single share. A
        share runs in batches of at most 256 examples, or 1024 if there is one slot.

        Args:
            requests: their arrays are read in place and must not change meanwhile. ``outputs`` of
                a request is not read.
            outputs: names of the outputs to return. Empty means all.

        Returns:
            The prediction of each request, or the error that refused it.

        Raises:
            NotFoundError: an output is unknown.
            InputError: ``requests`` is not a sequence of ``SampleRequest``, or ``outputs`` is not a
                list of names.
        """
        import numpy as np

        from embershard.client.arguments import names_of
        from embershard.package.samples import check_are_samples

        check_are_samples("requests", requests)
        arrays = [
            (
                request.num_examples,
                *(np.ascontiguousarray(getattr(request, name)) for name in PARTS),
            )
            for request in requests
        ]
        answers = self._native.predict_merged(arrays, names_of("outputs", outputs))
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
    """Measure the CPU time of each batch of lookups in one table with the server's kernels.

    Args:
        rows: ``[rows, row_bytes]``, in the form of a package.
        ids: ``[batches, ids]`` row numbers.
        offsets: ``[bags + 1]``, the same for every batch, from 0 to the number of ids.
    """
    import numpy as np

    assert ids.shape[1] == offsets[-1] > 0
    seconds = load_extension().lookup_seconds(
        rows=np.ascontiguousarray(rows).reshape(-1),
        weights=weights,
        dim=dim,
        ids=np.ascontiguousarray(ids).reshape(-1),
        offsets=offsets,
    )
    return [float(batch) for batch in seconds]
