"""The weights that a run kept, an adapter or a whole model, as its folder has them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from llmexp.record.folder import RunFolder
from llmexp.record.result import RunResult
from llmexp.record.trackers.files import files_below

# Above it a model is recorded with its place only. Adapters of LoRA lie below it, whole models that are worth training
# above: a copy to a server has to be over within tracking.timeout_s.
MOST_COPIED_BYTES = 2**30
_PLACE = re.compile(r"repeat\.\d+/(adapter|model)")


@dataclass(frozen=True)
class KeptWeights:
    """A folder of weights and its files by name; `base` is the model that an adapter belongs to, "" without one."""

    kind: str
    folder: Path
    files: Mapping[str, Path]
    size_bytes: int
    base: str = ""

    @property
    def is_copied(self) -> bool:
        """Tell whether the weights are few enough to be copied to the tracker."""
        return self.size_bytes <= MOST_COPIED_BYTES


def kept_weights(folder: RunFolder, result: RunResult | None) -> list[KeptWeights]:
    """Return what the run says that it saved and still has; a link out of its folder does not count."""
    root = folder.path.resolve()
    said = result.what_ran.get("saved") or [] if result else []
    places = {place: folder.path / place for place in said if _PLACE.fullmatch(str(place))}
    there = {place: path for place, path in places.items() if path.resolve() == root / place and path.is_dir()}
    return [_kept(place.partition("/")[2], path) for place, path in there.items()]


def _kept(kind: str, folder: Path) -> KeptWeights:
    files = files_below(folder)
    size_bytes = sum(path.stat().st_size for path in files.values())
    return KeptWeights(kind, folder, files, size_bytes, _base(folder / "adapter_config.json"))


def _base(configuration: Path) -> str:
    try:
        return str(json.loads(configuration.read_text()).get("base_model_name_or_path") or "")
    except (OSError, ValueError, AttributeError):
        return ""
