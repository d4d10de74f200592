import sys
from types import ModuleType

import pytest

from llmexp.machine.energy_counters import gpu_counters
from llmexp.record import energy
from llmexp.record.energy import EnergyMeter
from llmexp.record.samples import StateBytes, TrainingSummary
from llmexp.training.metrics import METRICS
from llmexp.training.repeats import RunConstants, read_training

BOARDS = {"GPU-a": 350.0, "GPU-b": 250.0, "GPU-old": None}


class FakeNvml(ModuleType):
    """Boards that draw so many watts all the time; the counter began somewhere, counts millijoules and can fail."""

    class NVMLError(Exception):
        pass

    def __init__(self, seconds):
        super().__init__("pynvml")
        self.seconds, self.lost = seconds, False

    def nvmlInit(self):  # noqa: N802
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        if uuid not in BOARDS:
            raise self.NVMLError("not found")
        return uuid

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):  # noqa: N802
        if BOARDS[handle] is None or self.lost:
            raise self.NVMLError("not supported")
        return round(1e3 * (5000 + BOARDS[handle] * self.seconds()))


@pytest.fixture
def clock(monkeypatch):
    """Seconds that only the test lets pass."""
    passed = [100.0]
    monkeypatch.setattr(energy, "perf_counter", lambda: passed[0])
    return passed


@pytest.fixture
def nvml(monkeypatch, clock):
    fake = FakeNvml(lambda: clock[0])
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def metered(counters, clock, seconds, between=lambda: None):
    with EnergyMeter(counters) as meter:
        clock[0] += seconds
        between()
    return meter


def test_two_boards_counters_become_tokens_per_joule(nvml, clock, tmp_path, write_samples):
    for rank, uuid in enumerate(("GPU-a", "GPU-b")):
        meter = metered(gpu_counters(uuid), clock, 40.0)
        assert meter.covers == ["GPU board"]
        write_samples(tmp_path, rank, [(2.0, 5.0, 600, 600)] * 21, warmup=range(1))
        state, sizes = {"parameters": StateBytes()}, {"parameters": 1, "trainable_parameters": 1, "peak_rss_bytes": 1}
        summary = TrainingSummary(
            rank=rank,
            window_wall_s=40.0,
            time_to_first_step_s=1.0,
            state_bytes=state,
            what_ran={},
            energy=meter.energy,
            **sizes,
        )
        (tmp_path / f"rank.{rank}.json").write_text(summary.model_dump_json())
    metrics = METRICS.measure([read_training(tmp_path, 2)], RunConstants(world_size=2, dp=2))
    # 2 ranks x 20 steps x 600 positions in 40 s, at 350 + 250 W.
    assert metrics["mean_power_w"].mean == pytest.approx(600)
    assert metrics["tokens_per_joule"].mean == pytest.approx(600 / 600)


@pytest.mark.parametrize("uuid", ["GPU-unknown", "GPU-old"])
def test_a_gpu_without_counter_has_no_energy(nvml, clock, uuid):
    meter = metered(gpu_counters(uuid), clock, 1.0)
    assert (meter.energy, meter.covers) == (None, None)


def test_a_counter_that_is_lost_spoils_the_energy_and_not_the_run(nvml, clock):
    assert metered(gpu_counters("GPU-a"), clock, 1.0, between=lambda: setattr(nvml, "lost", True)).energy is None


def test_a_rank_whose_node_another_one_reads_has_energy_of_nothing(clock):
    meter = metered([], clock, 3.0)
    assert (meter.energy.joules, meter.energy.seconds) == ({}, 3)
