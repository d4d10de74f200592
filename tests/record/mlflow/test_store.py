import gc
import sys
from pathlib import Path

import pytest

from llmexp.errors import RecordError
from llmexp.record.mlflow.store import artifact_root, connect, database_path, resolve_uri
from llmexp.schema import TrackingConfig


def test_the_configured_uri_comes_before_the_environment_s_before_the_outputs_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://from-environment")
    assert resolve_uri(TrackingConfig(name="mlflow", uri="http://configured"), tmp_path) == "http://configured"
    assert resolve_uri(TrackingConfig(name="mlflow"), tmp_path) == "http://from-environment"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert resolve_uri(TrackingConfig(name="mlflow"), tmp_path) == f"sqlite:///{tmp_path}/mlflow.db"


def test_artifacts_lie_beside_a_sqlite_store_wherever_one_calls_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert artifact_root("sqlite:///runs/mlflow.db?timeout=5") == str(tmp_path / "runs" / "mlartifacts")


@pytest.mark.parametrize("uri", ["http://host:5000", "postgresql://host/db"])
def test_a_server_decides_on_its_artifacts_itself(uri):
    assert artifact_root(uri) is database_path(uri) is None


def test_planning_and_reading_need_no_mlflow():
    import subprocess
    import sys

    script = "import sys, llmexp.record.mlflow; sys.exit('mlflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False, cwd=Path("/")).returncode == 0


def test_a_store_whose_making_was_broken_off_is_made_anew(tmp_path, monkeypatch):
    from mlflow import MlflowClient

    class BrokenOffError(Exception):
        pass

    def break_off(client, **words):
        raise BrokenOffError

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    with monkeypatch.context() as patched:
        patched.setattr(MlflowClient, "search_experiments", break_off)
        with pytest.raises(BrokenOffError):
            connect(uri, 10)
    assert list(tmp_path.iterdir()) == []
    assert connect(uri, 10).create_experiment("mine")
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db"]


@pytest.mark.parametrize("last_line", ["pass", "raise ImportError"])
def test_only_while_mlflow_is_imported_nothing_is_collected(tmp_path, monkeypatch, last_line):
    note = "notes.seen.append(gc.isenabled())"
    client = ("class MlflowClient:", "    def __init__(self, uri):", f"        {note}")
    (tmp_path / "mlflow.py").write_text("\n".join(("import gc, notes", note, *client, last_line)))
    (tmp_path / "notes.py").write_text("seen = []")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("mlflow", "notes"):
        monkeypatch.setitem(sys.modules, name, None)  # whatever is imported under this name is gone afterwards
        monkeypatch.delitem(sys.modules, name)
    import notes

    try:
        if last_line == "pass":
            connect("http://host", 10)
            connect("http://host", 10)
            assert notes.seen == [False, False, True]
        else:
            with pytest.raises(RecordError, match="mlflow is not installed"):
                connect("http://host", 10)
            assert notes.seen == [False]
        assert gc.isenabled()
        assert gc.get_freeze_count()
    finally:
        gc.collect()
        gc.freeze()  # as it is while these tests run
