"""task=serve as a person types it: servers that go wrong, clients and drivers that are ended, and a real server."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from marks import slow
from patience import HANG_S

from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.result import RunResult
from llmexp.record.samples import read_samples
from llmexp.serving.record.requests import RequestSample

pytestmark = pytest.mark.ranks
FAULTY = Path(__file__).parents[1] / "chaos" / "faulty_server.py"
WORDS = ("task=serve", "model=tiny", "hardware=cpu", "measure.threads_per_rank=1", "tracking=none")
SMALL = ("serve.requests=6", "serve.warmup_requests=2", "serve.prompt.tokens=8", "serve.output.tokens=8")
TWO_LOADS = ("serve.rate=max", "serve.concurrency=2")
# Of the 16 requests of two loads, the 12th is the second measured one of the closed load.
IN_THE_SECOND = "--after 11"
LOG = r"\S*/repeat\.0/log\.server\.txt"
ACCOUNTS = re.compile(
    r"the run ended with (\d+) of (\d+) requests answered, (\d+) failed, (\d+) in flight and (\d+) not sent"
)
LONG_S = 300


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the folder of the tiny model is, which is written once."""
    return tmp_path_factory.mktemp("cache")


@dataclass
class Sweep:
    """A folder in which commands are typed; every server that they start names the folder."""

    folder: Path
    cache: Path

    def words(self, fault: str, *more: str) -> list[str]:
        server = f"{{python}} {FAULTY} {{port}} --told {self.told} --fault '{fault.partition(' --')[0]}'"
        after = f" --after {fault.partition('--after ')[2] or 0}"
        options = ("engine=command", f'engine.options.command="{server}{after}"', "engine.options.token_ids=true")
        return [sys.executable, "-m", "llmexp", *WORDS, *options, *SMALL, *more]

    @property
    def told(self) -> Path:
        """The file that tells the server what goes wrong, where it is there."""
        return self.folder / "told"

    def start(self, words: list[str]) -> subprocess.Popen[str]:
        pipe, env = subprocess.PIPE, os.environ | {"XDG_CACHE_HOME": str(self.cache)}
        # Where these tests are a shell's background job they ignore SIGINT, and so would all that they start.
        ignored = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return subprocess.Popen(words, cwd=self.folder, env=env, stdout=pipe, stderr=pipe, text=True)
        finally:
            signal.signal(signal.SIGINT, ignored)

    def run(self, fault: str, *more: str) -> subprocess.CompletedProcess[str]:
        process = self.start(self.words(fault, *more))
        said = process.communicate(timeout=LONG_S)
        return subprocess.CompletedProcess(process.args, process.returncode, *said)

    @property
    def only(self) -> RunFolder:
        (found,) = find_runs(self.folder / "outputs")
        return found

    @property
    def result(self) -> RunResult:
        found = self.only.result()
        assert found
        return found

    def processes(self) -> list[psutil.Process]:
        """Every server that was started here and runs."""
        return [one for one in psutil.process_iter(["cmdline"]) if str(self.told) in (one.info["cmdline"] or ())]

    def samples(self) -> list[RequestSample]:
        path = self.only.repeat(0) / "samples.0.jsonl"
        return read_samples(path, RequestSample) if path.exists() else []

    def is_accounted_for(self) -> None:
        """Every request of a load point that was not complete is counted, and agrees with the samples."""
        for number, point in enumerate(self.result.points):
            own = [sample for sample in self.samples() if sample.point == number and not sample.warmup]
            said = ACCOUNTS.match(point.problem)
            if said is None:
                assert len(own) == 6, point.problem
                continue
            answered, planned, failed, at_work, not_sent = map(int, said.groups())
            assert answered + failed + at_work + not_sent == planned
            assert len(own) == planned - not_sent
            assert answered == sum(not sample.problem for sample in own)
            assert not point.metrics


@pytest.fixture
def sweep(tmp_path: Path, cache: Path) -> Iterator[Sweep]:
    found = Sweep(tmp_path, cache)
    yield found
    assert psutil.wait_procs(found.processes(), timeout=LONG_S)[1] == []


def until(holds: Callable[[], object], process: subprocess.Popen[str]) -> None:
    while not holds():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("fault", "status", "reason"),
    [
        slow(f"dies {IN_THE_SECOND}", "failed", rf"ServerDiedError: .* ended by SIGKILL; {LOG} ends: serving"),
        slow(f"hangs {IN_THE_SECOND}", "timeout", rf"the server has stopped serving: .*; {LOG} ends: serving"),
        slow(
            f"runs out {IN_THE_SECOND}", "oom", rf"exit code 1; {LOG} ends: torch.OutOfMemoryError: CUDA out of memory"
        ),
        slow("ends at its start", "failed", rf"exit code 1; {LOG} ends: ValueError: no such model"),
        slow("runs out at its start", "oom", rf"exit code 1; {LOG} ends: torch.OutOfMemoryError: CUDA out of memory"),
        slow("is never ready", "timeout", rf"does not answer .* \(serve\.silent_timeout_s=5\); {LOG} ends: st"),
    ],
)
def test_a_server_that_ends_or_hangs_is_named_with_its_last_words(
    sweep: Sweep, fault: str, status: str, reason: str
) -> None:
    done = sweep.run(fault, *TWO_LOADS, "serve.silent_timeout_s=5")
    assert done.returncode == (0 if status == "oom" else 1), done.stderr
    result = sweep.result
    assert result.status == status
    assert re.search(reason, result.reason), result.reason
    assert "\n" not in result.reason
    assert result.failure
    assert "the end of " in result.failure.traceback, "the further lines of the log"
    sweep.is_accounted_for()
    assert "not measured: the run ended with" in done.stdout
    if IN_THE_SECOND in fault:
        first, second = result.points
        assert first.metrics["output_tokens_per_s"]
        assert second.problem.startswith(("the run ended with 0", "the run ended with 1", "the run ended with 2"))
        assert re.search(r"\n max +\d", done.stdout), "the load point that was complete"


@pytest.mark.slow
def test_a_hang_is_noticed_while_requests_go_on_being_due(sweep: Sweep) -> None:
    """Two are due a second for half a minute; what is sent to a server is no sign of its life."""
    words = [word for word in sweep.words("hangs --after 4") if not word.startswith("serve.requests")]
    sweep.start([*words, "serve.rate=2", "serve.requests=60", "serve.silent_timeout_s=3"]).communicate(timeout=LONG_S)
    assert sweep.result.status == "timeout"
    sweep.is_accounted_for()
    (point,) = sweep.result.points
    accounts = ACCOUNTS.match(point.problem)
    assert accounts
    assert int(accounts[5]) > 0, "not sent yet"


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        slow("answers 429", 'HTTP status 429: {"error": {"message": "the fault is 429"}}'),
        slow("answers 500", 'HTTP status 500: {"error": {"message": "the fault is 500"}}'),
        slow("resets", "the server dropped the connection"),
        slow("breaks off", "the stream ended before its last token"),
        slow("keeps silent", "the server sent nothing to anyone for serve.silent_timeout_s=5, although it answers"),
    ],
)
def test_requests_that_fail_are_counted_while_others_are_answered(sweep: Sweep, fault: str, why: str) -> None:
    done = sweep.run(fault, "serve.rate=max", "serve.silent_timeout_s=5")
    assert done.returncode == 0, done.stderr
    assert sweep.result.reason.startswith(f"3 of 6 requests failed: {why}")
    (point,) = sweep.result.points
    counts = {name: point.metrics[name] for name in ("requests", "failed_requests")}
    assert [metric.mean for metric in counts.values() if metric] == [6, 3]
    assert sweep.result.stability
    assert sweep.result.stability.verdict == "unstable"
    sweep.is_accounted_for()


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        slow("is short", "8 output tokens were asked for, the server counted 7"),
        slow("counts more", "8 output tokens were asked for, the server counted 9"),
        slow("sends more", "8 output tokens were asked for, the server counted 9"),
        slow("repeats", "8 output tokens were asked for, it sent 9"),
    ],
)
def test_a_load_whose_answers_are_other_work_has_no_figures(sweep: Sweep, fault: str, why: str) -> None:
    done = sweep.run(f"{fault} --after 8", *TWO_LOADS)
    assert done.returncode == 0, done.stderr
    first, second = sweep.result.points
    assert first.metrics["output_tokens_per_s"]
    assert first.metrics["output_tokens_per_s"] == sweep.result.metrics["output_tokens_per_s"]
    assert not second.metrics
    assert second.problem == f"3 of 6 answers are not what was asked for: {why}"


@pytest.mark.slow
def test_a_run_without_any_figure_has_failed(sweep: Sweep) -> None:
    assert sweep.run("is short", "serve.rate=max").returncode == 1
    assert sweep.result.status == "failed"
    assert sweep.result.reason.startswith("no load point could be measured: 3 of 6 answers are not what was asked for")
    sweep.is_accounted_for()


@pytest.mark.slow
def test_a_server_that_refuses_all_has_failed(sweep: Sweep) -> None:
    sweep.told.write_text("refuses all")
    assert sweep.run("", "serve.rate=max").returncode == 1
    assert sweep.result.status == "failed"
    assert "no request got a complete answer; the last one: HTTP status 503" in sweep.result.reason
    sweep.is_accounted_for()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("who", "number"),
    [
        pytest.param("client", signal.SIGTERM, marks=pytest.mark.sweep),
        ("client", signal.SIGKILL),
        ("driver", signal.SIGINT),
        pytest.param("driver", signal.SIGTERM, marks=pytest.mark.sweep),
        ("driver", signal.SIGKILL),
    ],
)
def test_who_is_ended_leaves_a_true_record_and_the_same_command_measures_again(
    sweep: Sweep, who: str, number: signal.Signals
) -> None:
    sweep.told.write_text("is slow")
    words = sweep.words("", "serve.rate=[]", "serve.concurrency=2", "serve.output.tokens=64")
    driver = sweep.start(words)
    until(lambda: find_runs(sweep.folder / "outputs") and len(sweep.samples()) > 2, driver)
    process = json.loads((sweep.only.repeat(0) / "process.0.json").read_text().splitlines()[0])
    os.kill(driver.pid if who == "driver" else process["pid"], number)
    driver.communicate(timeout=LONG_S)
    gone = [*sweep.processes(), *sweep.only.rank_processes()]
    assert psutil.wait_procs(gone, timeout=LONG_S)[1] == []
    assert sweep.only.state() == "killed"
    if (who, number) == ("driver", signal.SIGKILL):
        assert sweep.only.result() is None
    elif number == signal.SIGKILL:
        (point,) = sweep.result.points
        assert re.search(r"and \d in flight or not sent; the client could no longer say which", point.problem)
    else:
        sweep.is_accounted_for()
        assert any(sample.was_at_work for sample in sweep.samples())
    sweep.told.unlink()
    again = sweep.start(words)
    assert again.communicate(timeout=LONG_S)[1].count("success") == 1
    assert sweep.result.status == "success"
    assert (sweep.only.path / "previous" / "1" / "repeat.0" / "samples.0.jsonl").exists()


@pytest.mark.slow
def test_a_sweep_with_a_budget_says_first_what_its_bursts_and_closed_loads_take_at_most(sweep: Sweep) -> None:
    done = sweep.run("", *TWO_LOADS, "budget.device_hours=1")
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("expected cost"))
    assert re.fullmatch(
        r"expected cost: 1 run: at most about [\d.]+ s on 1 device \(1 by requests measured just now\)", line
    )
    assert [point.metrics["requests"].mean for point in sweep.result.points if point.metrics] == [6, 6]
    assert not list(sweep.folder.glob("outputs/*/.pilot"))


@pytest.mark.slow
def test_two_runs_side_by_side_have_servers_at_ports_of_their_own(sweep: Sweep) -> None:
    started = [sweep.start(sweep.words("", "serve.rate=max", f"sweep.name={name}")) for name in ("one", "two")]
    for driver in started:
        said = driver.communicate(timeout=LONG_S)
        assert driver.returncode == 0, said
    logs = [run.repeat(0) / "log.server.txt" for run in find_runs(sweep.folder / "outputs")]
    said_ports = {re.findall(r"serving at (\d+)", log.read_text())[-1] for log in logs}
    assert len(said_ports) == len(logs) == 2


@pytest.mark.slow
def test_keys_that_a_server_inherits_or_is_told_are_never_recorded(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server prints its key before its last words, which thus come into the failure's report."""
    secret = "".join(["q7wE5rT3yU1i", "O9pA8sD6fG4h"])  # in pieces, so that no scanner takes it for a leak
    monkeypatch.setenv("MY_API_KEY", secret)
    assert sweep.run("ends at its start", "serve.rate=max").returncode == 1
    assert secret in (sweep.only.repeat(0) / "log.server.txt").read_text()
    assert sweep.result.failure
    assert "the server's own key is ***" in sweep.result.failure.traceback
    told = [path for path in sweep.only.path.iterdir() if path.is_file()]
    assert len(told) > 3
    assert not [path for path in told if secret in path.read_text()]
    words = [*sweep.words("", "serve.rate=max"), f"engine.options.command='serve {{port}} --api-key={secret}'"]
    refused = sweep.start([*words, "sweep.name=refused"])
    line = refused.communicate(timeout=LONG_S)[1]
    assert refused.returncode == 2
    assert "engine.options.command holds a token or a password, which would be recorded" in line
    assert not (sweep.folder / "outputs" / "refused").exists()


@pytest.mark.long
def test_a_real_server_gives_two_load_points_with_their_floor_pictures_and_copy_in_mlflow(tmp_path: Path) -> None:
    words = [word for word in WORDS if "tracking" not in word]
    words.append(f"tracking.timeout_s={HANG_S:g}")
    load = ("serve.rate=20,max", "serve.requests=8", "serve.prompt.tokens=16", "serve.output.tokens=8")
    command = [sys.executable, "-m", "llmexp", *words, *load]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=2 * LONG_S)
    assert done.returncode == 0, done.stderr
    (folder,) = find_runs(tmp_path / "outputs")
    result = folder.result()
    assert result
    assert [point.params["rate_per_s"] for point in result.points] == [20, "max"]
    samples = read_samples(folder.repeat(0) / "samples.0.jsonl", RequestSample)
    for number, point in enumerate(result.points):
        own = [sample for sample in samples if sample.point == number and not sample.warmup]
        assert len(own) == 8
        assert {(sample.usage_prompt_tokens, sample.usage_output_tokens) for sample in own} == {(16, 8)}
        assert all(len(sample.token_ids or ()) == 8 for sample in own), "its words are tokens"
        found = {name: metric.mean for name, metric in point.metrics.items() if metric}
        seconds = max(sample.end_s for sample in own) - min(sample.scheduled_s for sample in own)
        assert found["output_tokens_per_s"] == pytest.approx(64 / seconds)
        assert found["ttft_p50_s"] > 0
        assert found["client_floor_ttft_p50_s"] > 0
        assert found["client_floor_requests_per_s"] > 0
    assert result.metrics["server_start_s"]
    memory = result.metrics["server_peak_resident_bytes"]
    assert memory
    assert memory.mean > 100e6, "of a process that has imported torch"
    held = {name: result.metrics[name] for name in ("weights_bytes", "kv_cache_bytes", "kv_cache_tokens")}
    assert all(metric and metric.mean > 0 for metric in held.values())
    assert result.what_ran == {
        "weights_bytes_from": "the tensors of the model's folder",
        "kv_cache_from": "blocks as they were set",
    }
    assert "weights: by the tensors of the model's folder" in done.stdout
    assert (folder.figures / "latencies.png").exists()
    assert (folder.path.parent / "report_latencies.png").exists()
    assert_in_mlflow(tmp_path, result)


def assert_in_mlflow(folder: Path, result: RunResult) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/outputs/mlflow.db")
    experiment = client.get_experiment_by_name("llmexp")
    assert experiment
    (run,) = client.search_runs([experiment.experiment_id], "tags.`llmexp.kind` = 'run'")
    history = client.get_metric_history(run.info.run_id, "points/output_tokens_per_s")
    means = [metric.mean for point in result.points if (metric := point.metrics["output_tokens_per_s"])]
    assert [each.value for each in sorted(history, key=lambda each: each.step)] == means
