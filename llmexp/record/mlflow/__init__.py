"""MLflow, the main tracker. Nothing else imports mlflow; what a run's folder holds is read by record.trackers.

tags       has a run's tags and status, and the names by which runs are found again
store      finds MLflow's store and opens a client for it
experiment makes the calls that the tracker needs in one experiment, each before a deadline
artifacts  copies files, with secrets in texts hidden
data_sets  tells what a run reads
models     makes models of kept weights, with the files that model_files writes
traces     writes and removes a run's traces
parents    keeps one parent run for each sweep
overview   has what is seen first: the columns of the list of runs, and a sweep's best figures
tracker    finds, writes and removes runs
lookup     asks a SQLite store for its runs without MLflow
live       follows runs that go on, in a process of their driver
follower   is that process
gained     reads what a run that goes on has gained
sink       has the entry points: record_runs, sync, record_report, has_report, lacks_report
ui         serves MLflow's own web page over the same store
"""

from llmexp.record.mlflow.live import followed
from llmexp.record.mlflow.overview import Overview
from llmexp.record.mlflow.sink import has_report, lacks_report, record_report, record_runs, sync
from llmexp.record.mlflow.store import check_store, resolve_uri
from llmexp.record.mlflow.ui import serve_ui
from llmexp.record.trackers.summary import SyncSummary

__all__ = [
    "Overview",
    "SyncSummary",
    "check_store",
    "followed",
    "has_report",
    "lacks_report",
    "record_report",
    "record_runs",
    "resolve_uri",
    "serve_ui",
    "sync",
]
