"""The simulated servers: one that only rounds otherwise, and one that computes something else."""

from __future__ import annotations


def test_a_right_server_is_the_same_and_one_without_a_layer_is_not() -> None:
    from benchmarks.trust_quality import RIGHT, WRONG, judged  # torch and transformers take 4 s

    right = judged("fp32", RIGHT["over 4 devices"], seed=0)
    assert {found.verdict for found in right.values()} == {"same"}
    wrong = judged("fp32", WRONG["a layer left out"], seed=0)
    assert {found.verdict for found in wrong.values()} == {"changed"}
