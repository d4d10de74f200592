from collections import Counter

from llmexp.paper.printed.findings import published_claims


def test_every_claim_has_its_own_name_and_one_of_four_verdicts() -> None:
    claims = published_claims()

    assert len({claim.name for claim in claims}) == len(claims)
    assert Counter(claim.verdict for claim in claims) == {"holds": 48, "partly": 17, "fails": 15, "cannot tell": 32}
