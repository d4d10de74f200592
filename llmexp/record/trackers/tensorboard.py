"""TensorBoard: the event files of a run, which `tensorboard --logdir outputs/tensorboard` shows.

They are written record by record with what the package tensorboard brings, so that no TensorFlow is looked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from llmexp.record.installed import installs
from llmexp.record.result import RunStatus
from llmexp.record.trackers.run_tracker import RunTracker, TrackedRun

if TYPE_CHECKING:
    from tensorboard.compat.proto.summary_pb2 import Summary

# The version that tells readers to look for no lost steps.
FILE_VERSION = "brain.Event:2"
# What no filesystem and no page of TensorBoard has trouble with.
_ODD = re.compile(r"[^\w.+=@,:()\[\]-]+")
LONGEST_FOLDER = 100


class TensorBoard(RunTracker):
    """Scalars over steps at the times when they happened, and final ones with the parameters; the note; pictures."""

    name = "tensorboard"
    library = "tensorboard"
    install = installs("tensorboard")

    def write(self, run: TrackedRun, folder: Path) -> None:
        """Write one file of events, in a folder below that has the words which tell the run from others."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        place = folder / _folder_name(run.words)
        place.mkdir(exist_ok=True)
        with (place / f"events.out.tfevents.{run.window.end_s:.0f}.llmexp").open("wb") as file:
            records = RecordWriter(file)
            start_s, end_s = run.window.start_s, run.window.end_s
            records.write(Event(wall_time=start_s, file_version=FILE_VERSION).SerializeToString())
            for summary in (*_parameters(run), *_texts(run), *_pictures(run)):
                records.write(Event(wall_time=end_s, summary=summary).SerializeToString())
            for name, value in run.metrics.items():
                records.write(Event(wall_time=end_s, summary=_scalar(name, value)).SerializeToString())
            for point in run.points:
                summary = _scalar(point.name, point.value)
                at_s = point.at_ms / 1e3
                records.write(Event(wall_time=at_s, step=point.step, summary=summary).SerializeToString())


def _folder_name(words: str) -> str:
    return _ODD.sub("_", words)[:LONGEST_FOLDER].lstrip(".")


def _scalar(name: str, value: float) -> Summary:
    from tensorboard.compat.proto.summary_pb2 import Summary

    return Summary(value=[Summary.Value(tag=name, simple_value=value)])


def _parameters(run: TrackedRun) -> Iterator[Summary]:
    """Yield the beginning and the end of what TensorBoard calls a session, by which its HPARAMS page compares runs."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb

    trial = f"{run.sweep}: {run.name} ({run.id})"
    yield hparams_pb(dict(run.params) | {"status": run.status}, trial, run.window.start_s)
    well = RunStatus(run.status).is_answer
    ended = plugin_data_pb2.SessionEndInfo(
        status=api_pb2.STATUS_SUCCESS if well else api_pb2.STATUS_FAILURE, end_time_secs=run.window.end_s
    )
    told = metadata.create_summary_metadata(plugin_data_pb2.HParamsPluginData(session_end_info=ended))
    tag, nothing = metadata.SESSION_END_INFO_TAG, metadata.NULL_TENSOR
    yield Summary(value=[Summary.Value(tag=tag, metadata=told, tensor=nothing)])


def _texts(run: TrackedRun) -> Iterator[Summary]:
    from tensorboard.plugins.text.summary_v2 import text_pb

    tags = "\n".join(f"- {name}: {value}" for name, value in run.tags.items())
    yield text_pb("run", f"# {run.name}\n\n{run.note}\n{tags}\n")


def _pictures(run: TrackedRun) -> Iterator[Summary]:
    from tensorboard.compat.proto.summary_pb2 import Summary

    for file in run.files:
        if size := file.picture_size:
            width, height = size
            shown = Summary.Image(width=width, height=height, colorspace=4, encoded_image_string=file.content())
            yield Summary(value=[Summary.Value(tag=file.name.removesuffix(".png"), image=shown)])


TENSORBOARD = TensorBoard()
