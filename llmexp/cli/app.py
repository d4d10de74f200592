"""Hydra over conf/: it is started once a command, and its errors are explained here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from hydra import initialize_config_module
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from llmexp.cli.explain import explain, raised_by_parsers
from llmexp.cli.hydra_private import add_folder
from llmexp.cli.resolvers import register
from llmexp.errors import ConfigError
from llmexp.plugins import conf_packages

if TYPE_CHECKING:
    from llmexp.cli.hydra_private import Hydra

CONFIG = "config"
# They import this room, and Hydra wants them where they are. An editable install hides that from Hydra's own search.
PLUGINS = {
    "hydra_plugins.llmexp_sweeper.sweeper": "LlmexpSweeper",
    "hydra_plugins.llmexp_sweeper.search": "SearchSweeper",
    "hydra_plugins.llmexp_local.launcher": "LocalLauncher",
    "hydra_plugins.llmexp_slurm.launcher": "SlurmLauncher",
}


class OutsideConf(SearchPathPlugin):
    """A search path plugin that adds the configuration files of other packages to conf/."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append each package; raises ConfigError for one that is broken."""
        for name in conf_packages():
            search_path.append(name, f"pkg://{name}")


@contextmanager
def hydra_app(folder: Path | None = None) -> Iterator[Hydra]:
    """Give Hydra with conf/, a folder of the user's own and llmexp's sweeper; errors inside become ConfigErrors."""
    if find_spec("llmexp.conf") is None:
        sources = Path(__file__).parents[1]
        raise ConfigError(
            f"{sources} hides the installed llmexp, and has no configuration beside it: type llmexp in place of "
            "python -m llmexp, or go to another folder"
        )
    register()
    Plugins.instance().register(OutsideConf)
    try:
        with initialize_config_module("llmexp.conf", job_name="llmexp", version_base="1.3"):
            for module, plugin in PLUGINS.items():
                Plugins.instance().register(getattr(import_module(module), plugin))
            hydra = GlobalHydra.instance().hydra
            assert hydra is not None
            if folder:
                add_folder(hydra, folder)
            yield hydra
    except (HydraException, OmegaConfBaseException, YAMLError) as error:
        raise explain(error) from None
    except ValueError as error:
        if not raised_by_parsers(error):
            raise
        raise explain(error) from None
