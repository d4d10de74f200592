"""What tests look at in the paper's tables beside made-up runs."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from llmexp.paper.reference import PAPER
from llmexp.record.folder import RunFolder
from llmexp.report.references.view import View
from llmexp.report.table import build_report

PURE = {"name": "bf16_pure"} | dict.fromkeys(("parameters", "gradients", "master", "moments"), "bf16")


def conf(name: str) -> Any:
    """A file of conf/ as a mapping."""
    return OmegaConf.to_container(OmegaConf.load(Path(__file__).parents[1] / "conf" / f"{name}.yaml"))


def views(*folders: RunFolder, asked: Container[str] = ()) -> list[View]:
    return [view for section in build_report(folders).sections for view in PAPER.beside(section).views(asked)]


def line(view: View, method: str, model: str = "") -> dict[str, str]:
    """The cells of a method's first line, or of its line among those of a model."""
    columns = {column.header: column.cells for column in view.table.columns}
    start = columns["model"].index(model) if model else 0
    row = columns["method"].index(method, start)
    return {header: cells[row] for header, cells in columns.items()}


def said(view: View) -> str:
    return "\n".join(view.table.legend)
