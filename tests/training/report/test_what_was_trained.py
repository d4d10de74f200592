import os

from llmexp.report.row import read_row
from llmexp.training.report.trained import added


def did(folder):
    found = read_row(folder).trained
    assert found
    return found


def test_the_replicas_digests_are_added_and_the_ranks_of_one_replica_count_once(trained, write_samples):
    run = trained([6.0, 5.0], ranks=2, parallelism__tp=2)
    for rank, digest in enumerate(["0a", "0a", "f0", "f0"]):
        write_samples(run.repeat(0), rank, [(1.0, 6.0), (1.0, 5.0)], sequences=digest)
        (run.repeat(0) / f"rank.{rank}.json").write_text((run.repeat(0) / "rank.0.json").read_text())
    assert did(run).sequences == [added(["0a", "f0"])] * 2 == ["00000000000000fa"] * 2


def test_measured_steps_have_losses_and_no_digest(trained, write_samples):
    run = trained([6.0, 5.0])
    lines = (run.repeat(0) / "samples.0.jsonl").read_text().splitlines(keepends=True)
    lines[1] = lines[1].replace('"sequences":"10"', '"sequences":null')
    (run.repeat(0) / "samples.0.jsonl").write_text("".join(lines))
    assert (did(run).losses, did(run).sequences) == ([6.0, 5.0], ["0000000000000010"])


def test_what_cannot_be_read_is_left_out(trained):
    run = trained([6.0, 5.0])
    (run.repeat(0) / "rank.0.json").write_text("{")
    assert (did(run).losses, did(run).largest_update) == ([6.0, 5.0], None)
    (run.repeat(0) / "samples.0.jsonl").unlink()
    assert did(run).losses == []


def test_how_a_step_is_computed_is_no_other_training_and_what_it_learns_by_is(trained):
    naive = did(trained([6.0])).requested
    same = [trained([6.0], method="F"), trained([6.0], ranks=2, batch__micro=1), trained([6.0], measure__steps=9)]
    assert [did(run).requested == naive for run in same] == [
        True,
        False,
        True,
    ]  # another global batch is another training
    others = [{"method": "Q"}, {"seed": 1}, {"optimizer__lr": 0.5}, {"measure__tokens": 9999}]
    assert not [changes for changes in others if did(trained([6.0], **changes)).requested == naive]


def test_a_run_that_has_failed_did_no_training_that_is_compared(make_run):
    assert read_row(make_run(status="failed", reason="a rank died")).trained is None


def test_dropout_draws_by_chance(trained):
    finetune = {"method": "L", "task__name": "finetune", "adapter": {"dropout": 0.1}}
    assert did(trained([6.0], **finetune)).draws
    assert not did(trained([6.0], adapter={"dropout": 0.1})).draws


def test_a_pipe_and_a_digest_that_is_none_stop_no_report(trained):
    run = trained([6.0, 5.0])
    path = run.repeat(0) / "samples.0.jsonl"
    path.write_text(path.read_text().replace('"10"', '"no number"'))
    assert did(run).losses == []
    path.unlink()
    os.mkfifo(path)
    assert did(run).losses == []
