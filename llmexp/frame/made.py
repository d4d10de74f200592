"""A DataFrame of pandas, which is imported when one is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from llmexp.errors import ConfigError
from llmexp.frame.columns import Meaning


def check_pandas(function: str) -> None:
    """Raise ConfigError where the function that needs pandas lacks it."""
    if find_spec("pandas") is None:
        raise ConfigError(f"{function} needs pandas: pip install pandas")


def frame_of(rows: Sequence[Mapping[str, Any]], meanings: Mapping[str, Meaning], **told: Any) -> Any:
    """Return a pandas.DataFrame whose `attrs` have what its columns mean, and what else is told."""
    import pandas

    frame = pandas.DataFrame(list(rows))
    frame.attrs = {"columns": {name: meanings[name] for name in frame.columns if name in meanings}, **told}
    return frame
