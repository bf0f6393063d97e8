"""Typical forwards. They are not in a test module, since pytest would rewrite their asserts."""

import torch
from torch.nn import functional

from embershard.jagged import KeyedTensor
from embershard.modules import to_examples

# They run with SCHEMA of tests.export.models, whose dense inputs are age (in request scope), price
# and likes.


def normalized(m, d, s):
    return functional.normalize(m.embeddings(s)["item"], dim=1)


def norm_of_rows(m, d, s):
    return m.embeddings(s)["item"].norm(dim=1) + m.embeddings(s)["user"].norm(p=1, dim=-1)


def norm_kept(m, d, s):
    item = m.embeddings(s)["item"]
    return item / (item.norm(2, 1, keepdim=True) + 1e-6)


def whole_numbers_for_floats(m, d, s):
    item = m.embeddings(s)["item"]
    scaled = functional.normalize(item, p=2) + functional.leaky_relu(item, 1)
    return functional.elu(scaled, alpha=2).sum(1)


def out_is_none(m, d, s):
    return torch.add(m.embeddings(s)["item"], 1, out=None)


def asserts(m, d, s):
    pooled = m.embeddings(s)
    user, item = pooled["user"], pooled["item"]
    assert user.dim() == 2, "user"
    assert user.shape == item.shape
    assert item.shape[1] == 4 and user.size(0) == d.shape[0], f"got {item.shape}"  # noqa: PT018
    assert 1 < item.shape[1] < 9
    assert item.dim() in (2, 3)
    assert item.dim() not in (0, 1)
    assert not item.isnan().any()
    assert all(entry.shape[1] == 4 for entry in (user, item))
    assert (
        item.shape[0]
        == user.shape[0]
    ), "rows"  # fmt: skip
    torch._assert(item.shape[1] == 4, "width")
    return user * item


def raises(m, d, s):
    item = m.embeddings(s)["item"]
    if item.shape[1] != 4:
        raise ValueError(f"expected 4 columns, got {item.shape[1]}")
    if not item.dim() == 2:
        raise ValueError("expected a matrix")
    if item.dim() not in (2, 3) :  # fmt: skip
        raise ValueError("expected a matrix")
    return item.sum(1)


def fresh_columns(m, d, s):
    item = m.embeddings(s)["item"]
    columns = torch.zeros(item.shape[0], 3)
    columns[:, 0] = item.sum(1)
    columns[:, 1:] = item[:, :2]
    columns[:, 2] *= 2
    columns[..., 0] += 1
    return columns


def fresh_number(m, d, s):
    item = m.embeddings(s)["item"]
    flags = torch.ones_like(item)
    flags[:, 1] = 0
    flags[:, 2:3] = 2.5
    return item * flags


def fresh_in_a_loop(m, d, s):
    user, item = m.embeddings(s)["user"], m.embeddings(s)["item"]
    products = item.new_zeros(item.size(0), 4, 4)
    for row in range(4):
        for column in range(row, 4):
            products[:, row, column] = user[:, row] * item[:, column]
    return products


def masked(m, d, s):
    item = m.embeddings(s)["item"]
    scores = item * 2
    scores[item < 0] = -1e9
    return torch.softmax(scores, dim=1)


def masked_by_values(m, d, s):
    item = m.embeddings(s)["item"]
    scores = item.clone()
    scores[item < 0] = item[item < 0] * 0.01
    return scores


def picked_places(m, d, s):
    item = m.embeddings(s)["item"]
    result = torch.zeros(item.shape)
    result[torch.arange(item.shape[0]), item.argmax(dim=1)] = 1.0
    return result


def sliced_buffer(m, d, s):
    history = m.sequences(s)["history"].to_padded_dense(3)
    return (history * m.positions[: history.shape[1]].unsqueeze(-1)).sum(1)


def regrouped(m, d, s):
    first, second = KeyedTensor.regroup([m.embeddings(s)], [["user", "item"], ["history"]])
    return torch.cat([first * 2, second], dim=1)


def regrouped_as_dict(m, d, s):
    groups = KeyedTensor.regroup_as_dict(
        [m.embeddings(s)], [["item"], ["user", "history"]], ["items", "users"]
    )
    return groups["items"].sum(1) + groups["users"].sum(1)


def regrouped_tensors(m, d, s):
    item = m.embeddings(s)["item"]
    keyed = KeyedTensor.from_tensor_list(["a", "b"], [item, item * 2])
    return KeyedTensor.regroup([keyed], [["b", "a"]])[0]


def lengths_of_a_feature(m, d, s):
    lengths = s["history"].lengths().float().unsqueeze(1)
    total = m.sequences(s)["history"].to_padded_dense(3).sum(dim=1)
    return total / lengths.clamp(min=1) + s.to_dict()["item"].lengths().unsqueeze(1)


def script_and_layers(m, d, s):
    return m.scripted(m.embeddings(s)["item"]) + m.traced(m.embeddings(s)["user"])


# Forwards with the mark `to_examples`: the user side is computed once per request.


def marked_asserts(m, d, s):
    pooled = m.embeddings(s)
    user = pooled["user"]
    assert user.shape[0] > 0 or user.dim() == 2
    return to_examples(functional.normalize(user)) * pooled["item"]


def marked_fresh(m, d, s):
    user = m.embeddings(s)["user"]
    columns = torch.zeros((user.shape[0], 2))
    columns[:, 0] = user.norm(dim=1)
    columns[:, 1] = d[:, 0]
    return to_examples(columns) * d[:, 1:]


def marked_assignment_of_both(m, d, s):
    user = m.embeddings(s)["user"]
    both = torch.zeros(user.shape[0], 4) + user
    both[:, 1] = d[:, 1]
    return both + to_examples(user)


def marked_lengths(m, d, s):
    vectors = m.sequences(s)["history"].to_padded_dense().sum(dim=1)
    mean = vectors / s["history"].lengths().clamp(min=1).unsqueeze(1)
    return to_examples(mean) * s["item"].lengths().unsqueeze(1) + d[:, 1:2]


def marked_groups(m, d, s):
    users, mixed = KeyedTensor.regroup([m.embeddings(s)], [["user", "history"], ["item", "user"]])
    return to_examples(users) * mixed


FORWARDS = (
    normalized,
    norm_of_rows,
    norm_kept,
    whole_numbers_for_floats,
    out_is_none,
    asserts,
    raises,
    fresh_columns,
    fresh_number,
    fresh_in_a_loop,
    masked,
    masked_by_values,
    picked_places,
    sliced_buffer,
    regrouped,
    regrouped_as_dict,
    regrouped_tensors,
    lengths_of_a_feature,
    script_and_layers,
)

MARKED = (marked_asserts, marked_fresh, marked_assignment_of_both, marked_lengths, marked_groups)
