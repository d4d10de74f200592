"""What packages of others build on, on the driver's side; `llmexp.extend_ranks` is the ranks' side.

These names are promised: what goes or changes its meaning is in the changelog first. Nothing else of llmexp is. Each is
imported when it is asked for, so that none of them brings torch or an engine that is not named.
docs/extending.md shows them at work.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmexp.analysis.metric import Metrics, MetricSpec, Shown, metric
    from llmexp.analysis.quantity import Measurement, over_repeats
    from llmexp.analysis.window import Repeat, duration_s
    from llmexp.dtypes import NumberFormat, bytes_of
    from llmexp.errors import ConfigError
    from llmexp.inputs.shape import ModelShape
    from llmexp.launch.commands import ranks_of
    from llmexp.launchers.deepspeed.engine import DeepSpeedEngine
    from llmexp.launchers.megatron.engine import MegatronEngine
    from llmexp.launchers.torch_native.engine import TorchEngine
    from llmexp.method import Atom, Techniques
    from llmexp.micro.families.base import DEVICE, HOST, Bar, Curves, Family, Limit, MicroPoint, Setting
    from llmexp.record.flops import Computed
    from llmexp.record.plan import Command, RunPlan
    from llmexp.record.result import ResultPoint
    from llmexp.record.run_id import identity
    from llmexp.record.samples import RankSummary, Sample
    from llmexp.record.trackers.run_tracker import RunTracker, TrackedRun
    from llmexp.report.columns import Column, ReportTable
    from llmexp.report.references.beside import Beside, ColumnPlace
    from llmexp.report.references.reference import Reference
    from llmexp.report.references.view import View
    from llmexp.report.row import Row
    from llmexp.report.section import ReportSection
    from llmexp.schema import AdapterConfig, MeasureConfig, RunConfig, Section
    from llmexp.schema.section import Sizes
    from llmexp.serving.engine import ServingEngine
    from llmexp.tasks.base import Task
    from llmexp.tasks.engine import Engine
    from llmexp.training.config import TrainingConfig
    from llmexp.training.engine import TrainingEngine
    from llmexp.training.plan.activations import Activations, Formula, Layer
    from llmexp.training.plan.dims import ParallelDims
    from llmexp.training.plan.memory import StatePlacement, Storage
    from llmexp.training.plan.share import Share
    from llmexp.training.plan.trained import Trained
    from llmexp.training.plan.training_plan import TrainingPlan
    from llmexp.training.repeats import RunConstants, TrainingRepeat

_PLACES = {
    # a method's atom
    "Atom": "llmexp.method",
    "Techniques": "llmexp.method",
    # its share of a plan's memory and FLOPs
    "AdapterConfig": "llmexp.schema",
    "ModelShape": "llmexp.inputs.shape",
    "Share": "llmexp.training.plan.share",
    "Trained": "llmexp.training.plan.trained",
    "Activations": "llmexp.training.plan.activations",
    "Layer": "llmexp.training.plan.activations",
    "Formula": "llmexp.training.plan.activations",
    "Storage": "llmexp.training.plan.memory",
    "StatePlacement": "llmexp.training.plan.memory",
    "Computed": "llmexp.record.flops",
    # a family of microbenchmarks
    "Family": "llmexp.micro.families.base",
    "MicroPoint": "llmexp.micro.families.base",
    "Setting": "llmexp.micro.families.base",
    "Limit": "llmexp.micro.families.base",
    "Curves": "llmexp.micro.families.base",
    "Bar": "llmexp.micro.families.base",
    "DEVICE": "llmexp.micro.families.base",
    "HOST": "llmexp.micro.families.base",
    "Sizes": "llmexp.schema.section",
    # a dtype
    "NumberFormat": "llmexp.dtypes",
    "bytes_of": "llmexp.dtypes",
    # an engine
    "Engine": "llmexp.tasks.engine",
    "TrainingEngine": "llmexp.training.engine",
    "ServingEngine": "llmexp.serving.engine",
    "DeepSpeedEngine": "llmexp.launchers.deepspeed.engine",
    "MegatronEngine": "llmexp.launchers.megatron.engine",
    "TorchEngine": "llmexp.launchers.torch_native.engine",
    "TrainingConfig": "llmexp.training.config",
    "TrainingPlan": "llmexp.training.plan.training_plan",
    "ParallelDims": "llmexp.training.plan.dims",
    "Command": "llmexp.record.plan",
    "ranks_of": "llmexp.launch.commands",
    # a metric
    "metric": "llmexp.analysis.metric",
    "Metrics": "llmexp.analysis.metric",
    "MetricSpec": "llmexp.analysis.metric",
    "Shown": "llmexp.analysis.metric",
    "Measurement": "llmexp.analysis.quantity",
    "Repeat": "llmexp.analysis.window",
    "TrainingRepeat": "llmexp.training.repeats",
    "RunConstants": "llmexp.training.repeats",
    "duration_s": "llmexp.analysis.window",
    # a task
    "Task": "llmexp.tasks.base",
    "RunConfig": "llmexp.schema",
    "MeasureConfig": "llmexp.schema",
    "Section": "llmexp.schema",
    "RunPlan": "llmexp.record.plan",
    "identity": "llmexp.record.run_id",
    "Sample": "llmexp.record.samples",
    "RankSummary": "llmexp.record.samples",
    "ResultPoint": "llmexp.record.result",
    "over_repeats": "llmexp.analysis.quantity",
    "Row": "llmexp.report.row",
    "ReportSection": "llmexp.report.section",
    # published figures
    "Reference": "llmexp.report.references.reference",
    "Beside": "llmexp.report.references.beside",
    "ColumnPlace": "llmexp.report.references.beside",
    "View": "llmexp.report.references.view",
    "Column": "llmexp.report.columns",
    "ReportTable": "llmexp.report.columns",
    # a tracker
    "RunTracker": "llmexp.record.trackers.run_tracker",
    "TrackedRun": "llmexp.record.trackers.run_tracker",
    # wrong input
    "ConfigError": "llmexp.errors",
}

__all__ = [
    "AdapterConfig",
    "ModelShape",
    "Share",
    "Trained",
    "Activations",
    "Layer",
    "Formula",
    "Storage",
    "StatePlacement",
    "Computed",
    "Family",
    "MicroPoint",
    "Setting",
    "Limit",
    "Curves",
    "Bar",
    "DEVICE",
    "HOST",
    "Sizes",
    "NumberFormat",
    "bytes_of",
    "Atom",
    "Command",
    "Reference",
    "Beside",
    "ColumnPlace",
    "View",
    "Column",
    "ReportTable",
    "ConfigError",
    "DeepSpeedEngine",
    "Engine",
    "Measurement",
    "MeasureConfig",
    "MegatronEngine",
    "metric",
    "Metrics",
    "MetricSpec",
    "over_repeats",
    "ParallelDims",
    "RankSummary",
    "ranks_of",
    "Repeat",
    "ReportSection",
    "ResultPoint",
    "Row",
    "RunConfig",
    "RunConstants",
    "RunPlan",
    "RunTracker",
    "Sample",
    "Section",
    "ServingEngine",
    "Shown",
    "Task",
    "Techniques",
    "TorchEngine",
    "TrackedRun",
    "TrainingConfig",
    "TrainingEngine",
    "TrainingPlan",
    "TrainingRepeat",
    "duration_s",
    "identity",
]


def __getattr__(name: str) -> Any:
    """Import a promised name when it is asked for."""
    if name not in _PLACES:
        raise AttributeError(f"module 'llmexp.extend' has no attribute '{name}'")
    module, _, attribute = _PLACES[name].partition(":")
    return getattr(import_module(module), attribute or name)
