import torch

from llmexp.measure.batch import MicroBatch
from llmexp.measure.sequence_digest import digest_of
from llmexp.record.samples import digest_text
from llmexp.record.trained import added


def batch(ids, labels=None) -> MicroBatch:
    ids = torch.tensor(ids)
    return MicroBatch(ids, ids if labels is None else torch.tensor(labels), ids.numel(), len(ids))


ROWS = [[5, 3, 9, 250], [1, 1, 7, 2], [0, 0, 0, 0], [4, 4, 4, 4]]


def text_of(*passes: MicroBatch) -> str:
    return digest_text(int(digest_of(passes)))


def test_ranks_and_passes_may_share_the_sequences_out_as_they_like():
    whole = text_of(batch(ROWS))
    assert whole == text_of(batch(ROWS[2:]), batch(ROWS[:2]))
    assert whole == added([text_of(batch(ROWS[3:])), text_of(batch(ROWS[1:3]), batch(ROWS[:1]))])


def test_other_sequences_tokens_labels_and_orders_of_tokens_have_other_digests():
    whole = text_of(batch(ROWS))
    others = [
        text_of(batch(ROWS[:3])),
        text_of(batch([*ROWS[:3], [4, 4, 4, 5]])),
        text_of(batch([[3, 5, 9, 250], *ROWS[1:]])),
        text_of(batch(ROWS, [[5, 3, 9, -100], *ROWS[1:]])),
        text_of(batch([*ROWS, ROWS[0]])),
        # Tokens that change places between two sequences leave the sum of all tokens at each place as it was.
        text_of(batch([[1, 3, 9, 250], [5, 1, 7, 2], *ROWS[2:]])),
        text_of(batch([row[:3] for row in ROWS])),
    ]
    assert len({whole, *others}) == 1 + len(others)


def test_digests_of_many_sequences_do_not_collide():
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(4, (20_000, 8), generator=generator)  # few tokens, so that many sequences are neighbors
    different = {tuple(row) for row in ids.tolist()}
    digests = {int(digest_of([MicroBatch(row[None], row[None], 8, 1)])) for row in torch.tensor(sorted(different))}
    assert len(digests) == len(different)
