from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from llmexp.schema import HardwareConfig

CONF = Path(__file__).parents[2] / "conf"
NAMES = sorted(path.stem for path in (CONF / "hardware").glob("*.yaml") if path.stem not in ("auto", "gpu", "cpu"))
WITHOUT_BF16 = {"t4", "v100"}
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
        assert name in WITHOUT_BF16 or peaks["bf16"] > 1.9 * peaks["fp32"]


@pytest.mark.parametrize("name", NAMES)
def test_every_card_has_its_architecture_and_its_peaks_follow(name):
    machine = hardware(name)
    assert machine.architecture
    assert machine.is_amd == ("AMD" in machine.device_names[0])
    assert ("bf16" in machine.peak_flops_per_s) == (name not in WITHOUT_BF16) == (machine.is_amd or machine.sm >= 80)


def test_peers_are_switched_off_where_they_must():
    disabled = {name for name in NAMES if hardware(name).environment.get("NCCL_P2P_DISABLE") == "1"}
    assert disabled == {"rtx4090", "rtx3090"}


def test_rtx3090_differs_from_its_nvlink_twin_in_the_links_alone():
    plain, bridged = hardware("rtx3090").model_dump(), hardware("rtx3090_nvlink").model_dump()
    differing = {key for key in plain if plain[key] != bridged[key]}
    assert differing == {"name", "interconnect", "interconnect_bandwidth_bytes_per_s", "environment", "sources"}
