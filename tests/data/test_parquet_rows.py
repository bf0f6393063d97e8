"""All lookups of ids find the same rows of tables."""

import numpy as np
import pyarrow as pa
import pytest

from embershard.data.parquet_rows import LastDictionary, RowLookup
from embershard.package.id_maps import Hash, Vocabulary


def test_a_growing_dictionary_is_mapped_once():
    requests = []

    def numbers(ids):
        requests.append(ids.tolist())
        return ids * 10

    last = LastDictionary(numbers)
    for values, expected, new in (
        ([5, 6], [50, 60], [[5, 6]]),
        ([5, 6], [50, 60], []),
        ([5, 6, 7, 8], [50, 60, 70, 80], [[7, 8]]),
        ([6, 5, 9], [60, 50, 90], [[6, 5, 9]]),
        ([6], [60], [[6]]),
        ([], [], [[]]),
    ):
        assert last.values(pa.array(values, pa.int64())).tolist() == expected
        assert requests == new
        requests.clear()


@pytest.mark.parametrize("spread", [1, 3, 1000, 2**61])
def test_a_vocabulary_has_the_same_rows_near_and_far(spread):
    """Ids that are close together are found in an array, and others by a search."""
    known = (np.array([1, -2, 0, 2, -1]) * spread).astype(np.int64)
    extremes = np.array([-(2**63), 2**63 - 1, 3, 4, -3], np.int64)
    unknown = np.setdiff1d(extremes, known)
    for policy, row in (("oov", 5), ("zero", -1)):
        lookup = RowLookup(Vocabulary(known, unknown=policy))
        assert lookup.rows(known).tolist() == [0, 1, 2, 3, 4]
        assert lookup.rows(unknown).tolist() == [row] * len(unknown)


def test_hashed_ids_have_the_rows_of_their_map():
    ids, hashed = np.arange(-50, 50), Hash(buckets=7)
    assert RowLookup(hashed).rows(ids).tolist() == hashed.rows_of(ids).tolist()
