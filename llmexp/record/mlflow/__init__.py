"""MLflow is a sink: a copy of run folders that can be made again from them at any time. Nothing else imports mlflow.

content    what a folder says, in MLflow's terms; points: its metrics
store      where MLflow's store is, and a client for it
experiment one experiment of it: the calls that the tracker needs, each before a deadline
parents    the runs of sweeps, below which those of folders lie
tracker    runs found, written, removed
lookup     what a SQLite store has, asked without MLflow
sink       record_runs, sync, record_report, has_report: the ways in
ui         MLflow's own web page over the same store
"""

from llmexp.record.mlflow.sink import SyncSummary, has_report, record_report, record_runs, sync
from llmexp.record.mlflow.store import check_store, resolve_uri
from llmexp.record.mlflow.ui import serve_ui

__all__ = [
    "SyncSummary",
    "check_store",
    "has_report",
    "record_report",
    "record_runs",
    "resolve_uri",
    "serve_ui",
    "sync",
]
