"""Jagged tensors in TorchScript: as arguments, as results, and built inside."""

import io

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from embershard.jagged import (
    JaggedTensor,
    KeyedJaggedTensor,
    KeyedTensor,
    jt_is_equal,
    kjt_is_equal,
)

# TorchScript is deprecated in favour of torch.export, but is what C++ hosts load today.
pytestmark = [
    pytest.mark.filterwarnings(rf"ignore:`torch.jit.{name}` is deprecated:DeprecationWarning")
    for name in ("script", "save", "load")
]


class KeyedJaggedMethods(torch.nn.Module):
    """Every method of a KeyedJaggedTensor that TorchScript knows."""

    def forward(
        self, kjt: KeyedJaggedTensor
    ) -> tuple[list[KeyedJaggedTensor], dict[str, JaggedTensor], list[Tensor], list[list[int]]]:
        first, rest = kjt.split([1, 1])
        swapped = kjt.permute([1, 0])
        features = kjt.to_dict()
        built = [
            first,
            rest,
            swapped,
            KeyedJaggedTensor.concat([rest, first]),
            KeyedJaggedTensor.from_jt_dict(features),
            KeyedJaggedTensor.from_lengths_sync(
                ["x", "y"], kjt.values(), kjt.lengths(), kjt.weights_or_none()
            ),
            KeyedJaggedTensor.from_offsets_sync(["x", "y"], kjt.values(), kjt.offsets()),
            KeyedJaggedTensor.empty(is_weighted=True),
            KeyedJaggedTensor.empty_like(kjt),
            kjt.to(kjt.device(), dtype=torch.float64),
            kjt.flatten_lengths(),
        ]
        features["b"] = swapped["b"]
        tensors = [kjt.weights(), kjt.offsets(), kjt["a"].values()]
        index = kjt.index_per_key()
        numbers = [
            kjt.length_per_key(),
            kjt.offset_per_key(),
            kjt.lengths_offset_per_key(),
            [kjt.stride(), len(kjt.keys()), index["b"]],
        ]
        return built, features, tensors, numbers


class JaggedMethods(torch.nn.Module):
    """Every method of a JaggedTensor that TorchScript knows."""

    def forward(self, jagged: JaggedTensor) -> tuple[list[JaggedTensor], list[Tensor]]:
        padded = jagged.to_padded_dense(3)
        weights = jagged.to_padded_dense_weights(3)
        built = [
            jagged.to(jagged.device()),
            JaggedTensor.empty(True, values_dtype=torch.int64),
            JaggedTensor.from_dense(jagged.to_dense(), jagged.to_dense_weights()),
            JaggedTensor.from_dense_lengths(padded, jagged.lengths(), weights),
            JaggedTensor(jagged.values(), offsets=jagged.offsets()),
        ]
        return built, [padded, weights]


class KeyedMethods(torch.nn.Module):
    """Every method of a KeyedTensor that TorchScript knows."""

    def forward(self, keyed: KeyedTensor) -> tuple[KeyedTensor, list[Tensor], list[int]]:
        parts = keyed.to_dict()
        other = KeyedTensor.from_tensor_list(["c"], [parts["b"] + keyed["b"]]).to(keyed.device())
        tensors = KeyedTensor.regroup([keyed, other], [["c", "a"], ["b"]])
        tensors.append(KeyedTensor.regroup_as_dict([keyed], [["b", "a"]], ["x"])["x"])
        joined = KeyedTensor(keyed.keys(), keyed.length_per_key(), keyed.values() * 2)
        return joined, tensors, keyed.offset_per_key()


def same(actual, expected):
    assert_close(actual, expected, rtol=0, atol=0)


def reloaded(module):
    """As a C++ host would get it: saved and loaded, without Python."""
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(module), file)
    file.seek(0)
    return torch.jit.load(file)


@pytest.fixture
def kjt():
    lengths = torch.tensor([2, 0, 1, 3], dtype=torch.int32)
    return KeyedJaggedTensor(["a", "b"], torch.arange(6), torch.arange(6) / 2, lengths=lengths)


@pytest.fixture(params=[torch.jit.script, reloaded], ids=["scripted", "saved-and-loaded"])
def compiled(request):
    return request.param


def test_keyed_jagged_tensor_methods_agree_with_python(compiled, kjt):
    built, features, tensors, numbers = compiled(KeyedJaggedMethods())(kjt)
    expected_built, expected_features, expected_tensors, expected_numbers = KeyedJaggedMethods()(
        kjt
    )
    for actual, expected in zip(built, expected_built, strict=True):
        assert kjt_is_equal(actual, expected)
    assert features.keys() == expected_features.keys()
    for key, expected in expected_features.items():
        assert jt_is_equal(features[key], expected)
    same(tensors, expected_tensors)
    assert numbers == expected_numbers


def test_jagged_tensor_methods_agree_with_python(compiled, kjt):
    built, tensors = compiled(JaggedMethods())(kjt["b"])
    expected_built, expected_tensors = JaggedMethods()(kjt["b"])
    for actual, expected in zip(built, expected_built, strict=True):
        assert jt_is_equal(actual, expected)
    same(tensors, expected_tensors)


def test_keyed_tensor_methods_agree_with_python(compiled):
    keyed = KeyedTensor(["a", "b"], [1, 2], torch.arange(6.0).view(2, 3))
    joined, tensors, offsets = compiled(KeyedMethods())(keyed)
    same(joined.values(), keyed.values() * 2)
    assert joined.keys() == ["a", "b"]
    same(tensors, KeyedMethods()(keyed)[1])
    assert offsets == [0, 1, 3]


def test_contradictions_are_refused_inside_too():
    def build(values: Tensor, lengths: Tensor) -> KeyedJaggedTensor:
        return KeyedJaggedTensor(["a", "b"], values, lengths=lengths)

    scripted = torch.jit.script(build)
    values = torch.arange(3)
    assert scripted(values, torch.tensor([1, 2])).stride() == 1
    with pytest.raises(torch.jit.Error, match=r"lengths: expected 2 elements .* got 3"):
        scripted(values, torch.tensor([1, 1, 1]))
    with pytest.raises(torch.jit.Error, match="lengths: expected int32 or int64"):
        scripted(values, torch.tensor([1.0, 2.0]))


def test_equality_can_be_scripted(kjt):
    scripted = torch.jit.script(kjt_is_equal)
    assert scripted(kjt, kjt)
    assert not scripted(kjt, kjt.permute([1, 0]))
    assert torch.jit.script(jt_is_equal)(kjt["a"], kjt["a"])


def test_variable_batches_are_split_and_joined_inside_too():
    @torch.jit.script
    def scripted(kjt: KeyedJaggedTensor) -> KeyedJaggedTensor:
        first, second = kjt.split([1, 1])
        return KeyedJaggedTensor.concat([second, KeyedJaggedTensor.empty_like(kjt), first])

    kjt = KeyedJaggedTensor(
        ["a", "b"],
        torch.arange(3),
        lengths=torch.tensor([1, 0, 2]),
        stride_per_key_per_rank=[[2], [1]],
        inverse_indices=(["a", "b"], torch.tensor([[1, 0], [0, 0]])),
    )
    found = scripted(kjt)
    assert kjt_is_equal(found, kjt.permute([1, 0]))
    assert found.inverse_indices()[0] == ["b", "a"]
    assert found.inverse_indices()[1].tolist() == [[0, 0], [1, 0]]


def test_permute_may_repeat_a_key_inside_too(kjt):
    @torch.jit.script
    def scripted(kjt: KeyedJaggedTensor) -> list[KeyedJaggedTensor]:
        return kjt.permute([1, 0, 1]).split([1, 2])

    for found, expected in zip(scripted(kjt), kjt.permute([1, 0, 1]).split([1, 2]), strict=True):
        assert found.keys() == expected.keys()
        assert kjt_is_equal(found, expected)
