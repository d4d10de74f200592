import sys

import pytest

from llmexp.machine.energy_counters import gpu_counters, package_counters


@pytest.fixture
def package(tmp_path):
    """Write a zone of the kernel's powercap tree."""

    def write(zone, name, microjoules):
        folder = tmp_path / zone
        folder.mkdir(exist_ok=True)
        for file, value in {"name": name, "energy_uj": microjoules, "max_energy_range_uj": 262_000_000_000}.items():
            (folder / file).write_text(f"{value}\n")
        return folder

    return write


def test_without_nvml_there_is_no_energy(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_counters("GPU-a") is None


def test_packages_count_and_their_parts_and_the_platform_do_not(package, tmp_path):
    package("intel-rapl:0", "package-0", 261_999_000_000)
    package("intel-rapl:1", "package-1", 5_000_000)
    package("intel-rapl:0:0", "dram", 1)
    package("intel-rapl:2", "psys", 1)

    counters = package_counters(tmp_path)
    earlier_j = [counter.read() for counter in counters]
    package("intel-rapl:0", "package-0", 79_000_000)
    package("intel-rapl:1", "package-1", 45_000_000)
    joules = {counter.name: counter.since(earlier) for counter, earlier in zip(counters, earlier_j, strict=True)}
    # The first counter came to its end of 262 kJ a joule after the first reading.
    assert joules == {"CPU package-0": pytest.approx(80), "CPU package-1": pytest.approx(40)}


def test_packages_that_are_missing_or_roots_alone_have_no_counter(package, tmp_path):
    assert package_counters(tmp_path) is None
    readable = package("intel-rapl:0", "package-0", 1) / "energy_uj"
    assert package_counters(tmp_path) is not None
    # Not even root can read a folder as a file.
    readable.unlink()
    readable.mkdir()
    assert package_counters(tmp_path) is None
