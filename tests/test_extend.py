"""The names that are promised to packages of others, and that the one among the tests needs no other."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from llmexp import extend, extend_ranks

OUTSIDE = Path(__file__).parent / "extension" / "outside" / "llmexp_outside"
DRIVERS_SIDE, RANKS_SIDE = "llmexp.extend", "llmexp.extend_ranks"


def imports_of_llmexp(source: str) -> set[tuple[str, str]]:
    """Module and name of what a source imports of llmexp; the name of a whole module is empty."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            found |= {(node.module or "", alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
    return {(module, name) for module, name in found if module.partition(".")[0] == "llmexp"}


@pytest.mark.parametrize("path", sorted(OUTSIDE.rglob("*.py")), ids=lambda path: path.name)
def test_a_package_of_others_imports_what_is_promised_and_nothing_else(path: Path) -> None:
    promised = {(module.__name__, name) for module in (extend, extend_ranks) for name in module.__all__}
    assert imports_of_llmexp(path.read_text()) - promised == set()


def test_an_import_of_anything_else_is_seen() -> None:
    source = (
        "import os, llmexp.record.plan\ndef f():\n    from llmexp.method import ATOMS\nfrom llmexp.extend import Atom"
    )
    assert imports_of_llmexp(source) == {
        ("llmexp.record.plan", ""),
        ("llmexp.method", "ATOMS"),
        ("llmexp.extend", "Atom"),
    }


@pytest.mark.parametrize("module", [extend, extend_ranks], ids=lambda module: module.__name__)
def test_every_promised_name_is_there_documented_and_known_to_type_checkers(module: ModuleType) -> None:
    assert set(module.__all__) == set(module._PLACES)
    undocumented = [name for name in module.__all__ if not getattr(module, name).__doc__]
    # A name for a kind of Repeat, and one for a few words.
    assert undocumented == (["ColumnPlace", "TrainingRepeat"] if module is extend else [])
    (checked,) = (node for node in ast.parse(Path(module.__file__ or "").read_text()).body if isinstance(node, ast.If))
    seen = {
        alias.asname or alias.name: f"{node.module}:{alias.name}" if alias.asname else node.module
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == module._PLACES
    with pytest.raises(AttributeError, match=rf"module '{module.__name__}' has no attribute 'Nothing'"):
        module.Nothing  # noqa: B018


def test_the_drivers_side_reaches_no_torch_and_an_atom_no_engine() -> None:
    code = "import sys\nfrom llmexp.extend import Atom\nprint(len([m for m in sys.modules if 'llmexp' in m]))\n"
    code += (
        "from llmexp import extend\nfor name in extend.__all__: getattr(extend, name)\nprint('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    few, torch = done.stdout.split()
    assert int(few) < 10
    assert torch == "False"


def test_the_frame_of_a_rank_needs_no_torch() -> None:
    code = "import sys\nfrom llmexp.extend_ranks import Rank, main\nprint('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_promised_modules_are_importable_by_name() -> None:
    assert [import_module(name).__name__ for name in (DRIVERS_SIDE, RANKS_SIDE)] == [DRIVERS_SIDE, RANKS_SIDE]
