"""unskew: federated learning on label-skewed, scarce and absent client data, with the privacy leak measured.

import unskew as us
done = us.run(us.Experiment(method="fedprox", rounds=20))
done.summary.best
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unskew.core.client import Client, End, Newcomer
    from unskew.core.letter import Letter
    from unskew.core.messages import Messages
    from unskew.core.part import Artefact, Exchange, Part, Sizes, Stream
    from unskew.core.registry import method, part
    from unskew.core.server import Server, StandIn
    from unskew.core.state import Rows, State
    from unskew.core.view import Batch, View
    from unskew.data import Dataset, from_arrays
    from unskew.environment import __version__
    from unskew.errors import UserError
    from unskew.experiment import Experiment
    from unskew.recipe import load as load_recipe
    from unskew.results.load import Loaded, load
    from unskew.runner import Run, run
    from unskew.watch import Round

# Looked up when first asked for: torch takes seconds to import, and `unskew --help` needs none of it.
_WHERE = {
    "Artefact": ("core.part", "Artefact"),
    "Batch": ("core.view", "Batch"),
    "Client": ("core.client", "Client"),
    "Dataset": ("data", "Dataset"),
    "End": ("core.client", "End"),
    "Exchange": ("core.part", "Exchange"),
    "Experiment": ("experiment", "Experiment"),
    "Letter": ("core.letter", "Letter"),
    "Loaded": ("results.load", "Loaded"),
    "Messages": ("core.messages", "Messages"),
    "Newcomer": ("core.client", "Newcomer"),
    "Part": ("core.part", "Part"),
    "Round": ("watch", "Round"),
    "Rows": ("core.state", "Rows"),
    "Run": ("runner", "Run"),
    "Server": ("core.server", "Server"),
    "Sizes": ("core.part", "Sizes"),
    "StandIn": ("core.server", "StandIn"),
    "State": ("core.state", "State"),
    "Stream": ("core.part", "Stream"),
    "UserError": ("errors", "UserError"),
    "View": ("core.view", "View"),
    "__version__": ("environment", "__version__"),
    "from_arrays": ("data", "from_arrays"),
    "load": ("results.load", "load"),
    "load_recipe": ("recipe", "load"),
    "method": ("core.registry", "method"),
    "part": ("core.registry", "part"),
    "run": ("runner", "run"),
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'unskew' has no attribute {name!r}")
    module, attribute = _WHERE[name]
    globals()[name] = value = getattr(importlib.import_module(f"unskew.{module}"), attribute)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})


__all__ = [
    "Artefact",
    "Batch",
    "Client",
    "Dataset",
    "End",
    "Exchange",
    "Experiment",
    "Letter",
    "Loaded",
    "Messages",
    "Newcomer",
    "Part",
    "Round",
    "Rows",
    "Run",
    "Server",
    "Sizes",
    "StandIn",
    "State",
    "Stream",
    "UserError",
    "View",
    "__version__",
    "from_arrays",
    "load",
    "load_recipe",
    "method",
    "part",
    "run",
]
