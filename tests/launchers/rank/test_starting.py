import gc
import subprocess
import sys

import pytest
from marks import slow

from llmexp.launchers.rank.starting import LEFT_OUT, begin_imports, end_imports


def test_what_is_left_out_can_be_imported_once_the_rank_has_started(monkeypatch):
    for name in LEFT_OUT:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "scipy", already := sys)
    begin_imports()
    try:
        assert not gc.isenabled()
        with pytest.raises(ModuleNotFoundError):
            import mlflow  # noqa: F401
        import scipy

        assert scipy is already
    finally:
        end_imports()
    assert gc.isenabled()
    assert "mlflow" not in sys.modules
    assert sys.modules["scipy"] is already


@pytest.mark.parametrize(
    ("launcher", "never"),
    [slow("deepspeed", set(LEFT_OUT)), ("torch_native", {*LEFT_OUT, "deepspeed", "bitsandbytes"})],
)
def test_a_rank_starts_without_what_it_never_asks_for(launcher, never):
    """What is left out is installed with mlflow, and transformers imports it where it is."""
    code = f"import runpy, sys; runpy.run_module('llmexp.launchers.{launcher}.worker', run_name='__main__')"
    watched = "import sys, llmexp.launchers.training.frame as frame; frame.train = lambda work: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", f"{watched}\n{code}"], capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert "transformers.modeling_utils" in modules
    assert not modules & never
