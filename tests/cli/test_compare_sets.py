import pytest

from llmexp.record.result import Metric


def tokens(mean):
    return {"tokens_per_s": Metric(mean=mean, std_between_repeats=0.002 * mean, n=5)}


@pytest.fixture
def sweeps(make_run):
    """The folders of three sweeps: one, its equal, and one that is slower."""
    for name, mean in (("before", 100.0), ("equal", 100.0), ("slow", 90.0)):
        for method in ("Naive", "R"):
            folder = make_run(method, metrics=tokens(mean), sweep__name=name)
    root = folder.path.parents[1]
    return [str(root / name) for name in ("before", "equal", "slow")]


def test_the_exit_code_is_a_gate(llmexp, sweeps):
    before, equal, slow = sweeps
    assert llmexp("compare", before, equal)[0] == 0
    code, out, _ = llmexp("compare", before, slow)
    assert code == 1
    assert "2 rows in both: 2 slower" in out
    assert llmexp("compare", slow, before, "--strict")[0] == 0
    assert llmexp("compare", before, slow, "--margin", "20%")[0] == 0


def test_a_row_without_a_partner_fails_only_a_strict_gate(llmexp, sweeps):
    before, equal, _ = sweeps
    assert llmexp("compare", before, f"{equal}/*Naive*", "--strict")[0] == 1
    assert llmexp("compare", before, f"{equal}/*Naive*")[0] == 0


def test_sets_are_lists_of_paths_too(llmexp, sweeps):
    before, equal, slow = sweeps
    assert llmexp("compare", f"{before}/*Naive*", f"{before}/*R*", "--to", slow)[0] == 1
    code, out, _ = llmexp("compare", before, "--to", equal)
    assert code == 0
    assert "2 within noise" in out


def test_a_baseline_stands_for_the_runs_that_it_was_written_from(llmexp, sweeps, tmp_path):
    before, equal, slow = sweeps
    file = str(tmp_path / "kept" / "baseline.json")
    assert llmexp("compare", before, "--save-baseline", file)[0] == 0
    code, out, _ = llmexp("compare", equal, "--baseline", file)
    assert (code, "llmexp ab measures both sides in turns" in out) == (0, True)
    assert "llmexp ab" not in llmexp("compare", before, equal)[1]
    assert llmexp("compare", slow, "--baseline", file)[0] == 1
    code, _, error = llmexp("compare", slow, "--baseline", "nowhere.json")
    assert code == 2
    assert "there is no baseline nowhere.json" in error
