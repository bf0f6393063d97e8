"""Jagged tensors in torch.fx: a forward that takes, reads and builds them has one flat graph."""

import operator

import torch
from torch import Tensor
from torch.testing import assert_close

from embershard.jagged import JaggedTensor, KeyedJaggedTensor, KeyedTensor, kjt_is_equal


def kjt_of(lengths):
    lengths = torch.tensor(lengths, dtype=torch.int32)
    total = int(lengths.sum())
    return KeyedJaggedTensor(
        ["a", "b"], torch.arange(total), torch.arange(total) / 2, lengths=lengths
    )


class Reads(torch.nn.Module):
    def forward(self, kjt: KeyedJaggedTensor) -> dict[str, Tensor]:
        first, second = kjt.split([1, 1])
        padded = kjt["a"].to_padded_dense(2)
        rows = JaggedTensor.from_dense_lengths(padded, kjt["a"].lengths().clamp(max=2))
        return {
            "first": first.values(),
            "second": second.lengths(),
            "swapped": kjt.permute([1, 0]).values(),
            "padded": padded,
            "rows": rows.values(),
            "weights": kjt.to_dict()["b"].weights(),
            "offsets": kjt.offsets(),
        }


class Builds(torch.nn.Module):
    def forward(self, kjt: KeyedJaggedTensor, dense: Tensor) -> list[Tensor]:
        padded = kjt["b"].to_padded_dense(2).float()
        keyed = KeyedTensor(keys=["x", "y"], length_per_key=[1, 1], values=dense)
        listed = KeyedTensor.from_tensor_list(["u", "v"], [padded, dense])
        regrouped = KeyedTensor.regroup([keyed, listed], [["x", "u"], ["y"]])
        named = KeyedTensor.regroup_as_dict([keyed, listed], [["v"]], ["v"])
        jagged = JaggedTensor(kjt.values(), kjt.weights(), lengths=kjt.lengths())
        return [keyed["y"], listed["u"], *regrouped, named["v"], jagged.to_padded_dense(1)]


class BuildsKeyedJagged(torch.nn.Module):
    def forward(self, kjt: KeyedJaggedTensor) -> list[KeyedJaggedTensor]:
        renamed = KeyedJaggedTensor.from_lengths_sync(["x", "y"], kjt.values(), kjt.lengths())
        again = KeyedJaggedTensor.from_offsets_sync(["u", "v"], kjt.values(), kjt.offsets())
        return [
            renamed,
            KeyedJaggedTensor.concat([renamed, again]),
            KeyedJaggedTensor.from_jt_dict({"z": kjt["a"]}),
            KeyedJaggedTensor.empty_like(kjt),
            KeyedJaggedTensor(["c"], kjt.values(), None, kjt.lengths()),
        ]


def same(actual, expected):
    assert_close(actual, expected, rtol=0, atol=0)


BATCHES = [[2, 1, 0, 3], [1, 0, 4, 2, 0, 0]]  # strides 2 and 3: the graph must hold neither


def test_reading_traces_to_a_graph_for_any_batch():
    traced = torch.fx.symbolic_trace(Reads())
    for lengths in BATCHES:
        same(traced(kjt_of(lengths)), Reads()(kjt_of(lengths)))


def test_building_traces_to_a_graph_for_any_batch():
    traced = torch.fx.symbolic_trace(Builds())
    for lengths in BATCHES:
        dense = torch.arange(float(len(lengths))).view(-1, 2)
        dense = torch.cat([dense, dense[:1]])[: len(lengths) // 2]
        same(traced(kjt_of(lengths), dense), Builds()(kjt_of(lengths), dense))


def test_building_keyed_jagged_tensors_traces_for_any_batch():
    traced = torch.fx.symbolic_trace(BuildsKeyedJagged())
    for lengths in BATCHES:
        kjt = kjt_of(lengths)
        for actual, expected in zip(traced(kjt), BuildsKeyedJagged()(kjt), strict=True):
            assert kjt_is_equal(actual, expected)


def test_a_construction_is_one_node():
    graph = torch.fx.symbolic_trace(BuildsKeyedJagged()).graph
    built = graph.find_nodes(op="call_function", target=KeyedJaggedTensor)
    assert len(built) == 3
    assert built[-1].args[0] == ["c"]


def test_reading_a_key_is_one_node():
    graph = torch.fx.symbolic_trace(Reads()).graph
    keys = [node.args[1] for node in graph.find_nodes(op="call_function", target=operator.getitem)]
    assert keys.count("a") == 2


def test_a_traced_width_alone_makes_a_node():
    class Widths(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return KeyedTensor(["a", "b"], [x.size(0), 1], torch.tensor([[1, 2, 3]]))["b"]

    traced = torch.fx.symbolic_trace(Widths())
    same(traced(torch.ones(2)), torch.tensor([[3]]))


def test_a_tensor_built_without_traced_values_becomes_a_constant():
    class Constant(torch.nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, KeyedTensor]:
            return x, KeyedTensor(["a"], [2], torch.tensor([[3.0, 4.0]]))

    x, constant = torch.fx.symbolic_trace(Constant())(torch.ones(1))
    same(x, torch.ones(1))
    same(constant["a"], torch.tensor([[3.0, 4.0]]))


def test_building_outside_a_trace_logs_nothing(caplog):
    torch.fx._symbolic_trace.is_fx_tracing_warning.cache_clear()
    kjt_of(BATCHES[0])
    assert caplog.records == []
