from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from llmexp.errors import ConfigError
from llmexp.launch.detect import Detected
from llmexp.launch.preflight import other_hardware
from llmexp.schema import HardwareConfig
from tests.planning import make_plan

CONF = Path(__file__).parents[2] / "conf"
NAMES = sorted(path.stem for path in (CONF / "hardware").glob("*.yaml") if path.stem not in ("auto", "gpu", "cpu"))
WITHOUT_BF16 = {"rtx2080ti", "t4", "v100"}
# Described by papers and never built: no compiler knows them, and no kernels were measured on them.
DESIGNS = {"llmcompass_latency", "llmcompass_throughput"}
NOT_FACTS = {
    "name",
    "device",
    "architecture",
    "device_names",
    "nodes",
    "interconnect",
    "sources",
    "environment",
    "calibration",
}


def hardware(name: str) -> HardwareConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        composed = compose(f"hardware/{name}")
    return HardwareConfig.model_validate(OmegaConf.to_container(composed.hardware))


@pytest.mark.parametrize("name", NAMES)
def test_every_number_has_its_source(name):
    machine = hardware(name)
    given = {key for key, value in machine.model_dump().items() if value and key not in NOT_FACTS}
    sourced = {key for keys in machine.sources for key in keys.split(", ")}
    assert machine.name == name
    assert machine.device_names
    assert given <= sourced
    assert sourced <= set(HardwareConfig.model_fields)


def test_tensor_cores_are_faster_than_fp32():
    for name in NAMES:
        peaks = hardware(name).peak_flops_per_s
        assert name in WITHOUT_BF16 | DESIGNS or peaks["bf16"] > 1.9 * peaks["fp32"]


def test_an_interconnect_of_fewer_devices_than_a_node_has_is_refused():
    with pytest.raises(ConfigError, match=r"interconnect_devices=2 is less than hardware\.devices_per_node=8"):
        make_plan("hardware=a6000", "hardware.interconnect_devices=2")
    assert make_plan("hardware=gb200", "hardware.devices_per_node=8").config.hardware.connected_devices == 72


@pytest.mark.parametrize("name", sorted(DESIGNS))
def test_a_design_is_predicted_by_its_data_sheet_and_never_started(name):
    plan = make_plan("model=7b", "method=F+Z3", f"hardware={name}", "precision=bf16_mixed")
    served = make_plan("task=serve", "engine=vllm", "model=7b", f"hardware={name}", "hardware.devices_per_node=1")
    assert plan.predicted.source == "its data sheet"
    assert served.predicted.source.endswith("its data sheet")
    a100 = Detected("a100", "a100", "NVIDIA A100-SXM4-80GB", 8, 85899345920, architecture="sm_80")
    assert "does not match this node: it needs 4 x LLMCompass's" in other_hardware(plan, a100)


def test_the_designs_differ_as_their_paper_says():
    """From table IV of LLMCompass: half of a full GA100's arrays, or twice as many with half of the bandwidth."""
    ga100 = 128 * 4 * 16 * 16 * 2 * 1.41e9
    latency, throughput = map(hardware, sorted(DESIGNS))
    peaks = [machine.peak_flops_per_s["bf16"] / ga100 for machine in (latency, throughput)]
    assert peaks == [pytest.approx(0.5, rel=1e-3), pytest.approx(2.0, rel=1e-3)]
    assert latency.memory_bandwidth_bytes_per_s == 2 * throughput.memory_bandwidth_bytes_per_s


@pytest.mark.parametrize("name", sorted(set(NAMES) - DESIGNS))
def test_every_card_has_its_architecture_and_its_peaks_follow(name):
    machine = hardware(name)
    assert machine.architecture
    assert machine.is_amd == ("AMD" in machine.device_names[0])
    assert ("bf16" in machine.peak_flops_per_s) == (name not in WITHOUT_BF16) == (machine.is_amd or machine.sm >= 80)


def test_peers_are_switched_off_where_the_paper_served_so():
    assert not {name for name in NAMES if "NCCL_P2P_DISABLE" in hardware(name).environment}
    disabled = {name for name in NAMES if hardware(name).serving_environment.get("NCCL_P2P_DISABLE") == "1"}
    assert disabled == {"rtx4090"}


def test_rtx3090_differs_from_its_nvlink_twin_in_the_links_alone():
    plain, bridged = hardware("rtx3090").model_dump(), hardware("rtx3090_nvlink").model_dump()
    differing = {key for key in plain if plain[key] != bridged[key]}
    assert differing == {"name", "interconnect", "interconnect_bandwidth_bytes_per_s", "sources"}
