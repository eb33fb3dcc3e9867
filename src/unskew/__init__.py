"""unskew: federated learning on label-skewed, scarce and absent client data, with the privacy leak measured.

import unskew as us
done = us.run(us.Experiment(method="fedprox", rounds=20))
done.summary.best
"""

from unskew.core.client import Client, End, Newcomer
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
from unskew.run import Run, run
from unskew.watch import Round

__all__ = [
    "Artefact",
    "Batch",
    "Client",
    "Dataset",
    "End",
    "Exchange",
    "Experiment",
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
