import json
import subprocess
import sys
import threading
import time
from pathlib import Path

from patience import until

from llmexp.machine.host_load import CoresInUse
from llmexp.record.folder import RunFolder
from llmexp.record.system import SystemSampler


def _lines(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_short_block_still_leaves_a_line_under_mlflows_names(tmp_path):
    began_s = time.time()
    with SystemSampler(tmp_path / "system.jsonl", interval_s=60):
        pass
    [line] = _lines(tmp_path / "system.jsonl")
    assert began_s - 1 <= line["at_s"] <= time.time() + 1
    assert line["system_memory_usage_megabytes"] > 0
    assert 0 <= line["cpu_utilization_percentage"] <= 100
    assert line["interval_s"] > 0
    assert line["load_average_1m"] >= 0
    assert line["cpu_own_cores"] + line["cpu_other_cores"] >= 0


def test_the_thread_ends_with_the_block_and_costs_next_to_nothing(tmp_path):
    began_s = time.process_time()
    with SystemSampler(tmp_path / "system.jsonl", interval_s=0.001):
        while not (tmp_path / "system.jsonl").exists() or len(_lines(tmp_path / "system.jsonl")) < 20:
            threading.Event().wait(0.05)
    samples = len(_lines(tmp_path / "system.jsonl"))
    assert (time.process_time() - began_s) / samples < 0.01
    assert "system-sampler" not in {thread.name for thread in threading.enumerate()}


def test_a_process_elsewhere_that_is_named_is_the_runs_own(tmp_path):
    """As a rank is that a container's daemon has started: it says who it is in the run's folder."""
    folder = RunFolder(tmp_path)
    folder.repeat(0).mkdir()
    place = str(folder.repeat(0) / "process.0.json")
    counted = tmp_path / "counted"
    tell = (
        "import json, os; from llmexp.record.identity import process_identity; "
        f"open({place!r}, 'w').write(json.dumps(process_identity()))"
    )
    start = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.DEVNULL)"
    # It computes until it was seen, whoever a busy machine lets go on.
    spin = f"while not os.path.exists({str(counted)!r}): pass"
    subprocess.run([sys.executable, "-c", start, f"{tell}\n{spin}"], check=True)
    cores, own_s = CoresInUse(folder.rank_processes), 0.0

    def has_seen(enough_s: float) -> bool:
        nonlocal own_s
        own_s += (sample := cores.since_last())["cpu_own_cores"] * sample["interval_s"]
        return own_s > enough_s

    until(lambda: has_seen(0.8), every_s=0.05)
    counted.touch()
    until(lambda: folder.rank_processes() == [])


def test_a_path_that_cannot_be_written_does_not_stop_the_run(tmp_path):
    with SystemSampler(tmp_path / "no such folder" / "system.jsonl"):
        ran = True
    assert ran


def test_a_folder_that_cannot_be_read_costs_the_samples_and_nothing_else(tmp_path):
    def refuse():
        raise OSError(116, "Stale file handle")

    with SystemSampler(tmp_path / "system.jsonl", 60, refuse):
        pass
    assert _lines(tmp_path / "system.jsonl") == []
