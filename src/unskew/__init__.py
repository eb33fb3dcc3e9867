"""Simulate federated training on label-skewed, scarce and absent client data, and measure the privacy leak.

import unskew as us
done = us.run(us.Experiment(method="fedprox", rounds=20))
done.summary.best
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unskew.audits.attacks import attack
    from unskew.audits.audit_runs import audit
    from unskew.base.environment import __version__
    from unskew.base.errors import UserError
    from unskew.base.tree import Rows, State
    from unskew.comparisons.compare_methods import compare
    from unskew.config.experiment import Experiment
    from unskew.config.recipe import load as load_recipe
    from unskew.data import Dataset, dataset, from_arrays
    from unskew.engines.engine_registry import engine
    from unskew.models import model
    from unskew.protocol.client_view import Client, End, Newcomer
    from unskew.protocol.method_registry import method, part
    from unskew.protocol.part import Artefact, Exchange, Part, Sizes, Stream
    from unskew.protocol.server_view import Messages, Server, StandIn
    from unskew.protocol.step_view import Batch, View
    from unskew.protocol.update_codec import OutgoingUpdate
    from unskew.reports.report_runs import report
    from unskew.reproductions.reproduce_target import reproduce
    from unskew.results.load_run import LoadedRun, load
    from unskew.runner.callbacks import Round
    from unskew.runner.run_experiment import Run, run

# Imported on first access: torch takes seconds to import, and `unskew --help` does not need it.
_LAZY_IMPORTS = {
    "Artefact": ("protocol.part", "Artefact"),
    "Batch": ("protocol.step_view", "Batch"),
    "Client": ("protocol.client_view", "Client"),
    "Dataset": ("data", "Dataset"),
    "End": ("protocol.client_view", "End"),
    "Exchange": ("protocol.part", "Exchange"),
    "Experiment": ("config.experiment", "Experiment"),
    "Letter": ("protocol.update_codec", "OutgoingUpdate"),  # the old name, for one version
    "Loaded": ("results.load_run", "LoadedRun"),  # the old name, for one version
    "LoadedRun": ("results.load_run", "LoadedRun"),
    "Messages": ("protocol.server_view", "Messages"),
    "Newcomer": ("protocol.client_view", "Newcomer"),
    "OutgoingUpdate": ("protocol.update_codec", "OutgoingUpdate"),
    "Part": ("protocol.part", "Part"),
    "Round": ("runner.callbacks", "Round"),
    "Rows": ("base.tree", "Rows"),
    "Run": ("runner.run_experiment", "Run"),
    "Server": ("protocol.server_view", "Server"),
    "Sizes": ("protocol.part", "Sizes"),
    "StandIn": ("protocol.server_view", "StandIn"),
    "State": ("base.tree", "State"),
    "Stream": ("protocol.part", "Stream"),
    "UserError": ("base.errors", "UserError"),
    "View": ("protocol.step_view", "View"),
    "__version__": ("base.environment", "__version__"),
    "audit": ("audits.audit_runs", "audit"),
    "compare": ("comparisons.compare_methods", "compare"),
    "report": ("reports.report_runs", "report"),
    "reproduce": ("reproductions.reproduce_target", "reproduce"),
    "attack": ("audits.attacks", "attack"),
    "dataset": ("data", "dataset"),
    "engine": ("engines.engine_registry", "engine"),
    "from_arrays": ("data", "from_arrays"),
    "load": ("results.load_run", "load"),
    "load_recipe": ("config.recipe", "load"),
    "method": ("protocol.method_registry", "method"),
    "model": ("models", "model"),
    "part": ("protocol.method_registry", "part"),
    "run": ("runner.run_experiment", "run"),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module 'unskew' has no attribute {name!r}")
    module, attribute = _LAZY_IMPORTS[name]
    globals()[name] = value = getattr(importlib.import_module(f"unskew.{module}"), attribute)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY_IMPORTS})


__all__ = [
    "Artefact",
    "Batch",
    "Client",
    "Dataset",
    "End",
    "Exchange",
    "Experiment",
    "LoadedRun",
    "Messages",
    "Newcomer",
    "OutgoingUpdate",
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
    "attack",
    "audit",
    "compare",
    "dataset",
    "engine",
    "from_arrays",
    "load",
    "load_recipe",
    "method",
    "model",
    "part",
    "report",
    "reproduce",
    "run",
]
