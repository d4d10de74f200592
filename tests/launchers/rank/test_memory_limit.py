import subprocess
import sys

import pytest
from patience import HANG_S
from planning import make_plan

from llmexp.errors import ConfigError

ALLOCATE = """
import sys, torch
from llmexp.launchers.rank.frame import _is_out_of_memory, device_of, lift_memory_limit
from llmexp.schema import HardwareConfig

def allocate():
    try:
        torch.ones(2**26)
        return "fits"
    except RuntimeError as error:
        return "out of memory" if _is_out_of_memory(error) else error

device_of(HardwareConfig(name="cpu", device="cpu", devices_per_node=1, memory_limit_bytes=int(sys.argv[1])), 0)
limited = allocate()
lift_memory_limit()
print(limited, allocate(), sep=", ")
"""


@pytest.mark.parametrize(("limit_bytes", "said"), [(2**27, "out of memory, fits"), (2**29, "fits, fits")])
def test_a_rank_on_cpu_gets_no_more_data_than_the_limit_until_it_has_measured(limit_bytes: int, said: str) -> None:
    words = [sys.executable, "-c", ALLOCATE, str(limit_bytes)]
    assert subprocess.run(words, capture_output=True, text=True, timeout=HANG_S, check=True).stdout.strip() == said


def test_a_limit_makes_another_run() -> None:
    limited = make_plan("hardware=cpu", "hardware.memory_limit_bytes=2000000000")
    assert limited.id != make_plan("hardware=cpu").id


def test_a_limit_that_no_rank_would_keep_is_refused() -> None:
    with pytest.raises(ConfigError, match="which task=pretrain with engine=script does not start; leave it out"):
        make_plan("hardware=cpu", "engine=script", "hardware.memory_limit_bytes=2000000000")
