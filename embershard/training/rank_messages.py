"""One message of ranks that end together: what all of them say is printed once."""

import hashlib
import time

from torch._C._distributed_c10d import Store

from embershard.collectives import failed_message, given_texts, named_ranks

WORD_SECONDS = 3.0
"""After which a rank that ends expects no word of the others."""
POLL_SECONDS = 0.01
LOST = "lost "
"""Before the message of a rank whose collective failed."""


def said_once(
    store: Store, rank: int, world_size: int, said: str, *, is_lost: bool = False
) -> str | None:
    """What this rank prints before it ends.

    It waits up to 3 s for the messages of the others. The first of those that say the same prints
    it, and names them unless they are all. A failed collective is mentioned only if no rank says
    anything else.

    Args:
        store: of the ranks.
        rank: of this process.
        world_size: number of ranks.
        said: why this rank ends.
        is_lost: whether that is a ``LostRankError``.

    Returns:
        None: another rank prints it.
    """
    ranks = range(world_size)
    keys = {each: f"ended/{each}" for each in ranks}
    store.set(keys[rank], LOST * is_lost + said)
    deadline = time.monotonic() + WORD_SECONDS
    while not store.check([*keys.values()]) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    given = given_texts(store, keys)
    lost = [each for each, text in given.items() if text.startswith(LOST)]
    if not is_lost:
        same = [each for each, text in given.items() if text == said]
        shown = said if len(same) == world_size else f"{named_ranks(same)}: {said}"
    else:
        same = lost if len(lost) == len(given) else []
        shown = failed_message(lost, [each for each in ranks if each not in given], said)
    if same[:1] != [rank]:
        return None
    # A rank that could not wait for this one may have printed it.
    printed = f"printed/{hashlib.sha256(said.encode()).hexdigest()}"
    return shown if store.add(printed, 1) == 1 else None
