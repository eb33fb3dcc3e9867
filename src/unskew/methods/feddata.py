"""FedData (Zhao et al. 2018): every client trains on its own rows and on a share of all clients' rows.

    (1)  D = union over all clients of a share of their rows, collected before round 1
    (2)  L = mean CE over the epochs of D_k + D, shuffled together
    (3)  w^{t+1} = sum_k p_k w_k,  p_k by the client's own rows only

Paper: Zhao, Li, Lai, Suda, Civin, Chandra, "Federated Learning with Non-IID Data", arXiv 2018.
A reference in the FLea paper, not a practical method: raw rows leave their clients for good. An epoch is longer by |D|,
about 50 times on CIFAR-10 with 100 rows per client, so report the epochs with its results. D contains the client's own
shared rows again. With `rules: released`, int(share n_k) rows are drawn with replacement, as in FLea's code. A client
that is absent in round 1 shares nothing.
Differs: Zhao et al. distribute a set that the server holds; here, as in FLea, it is collected from the clients. Rows
are shared as they are stored: augmented only with `data.augment.frozen`.
"""

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from unskew.base.tree import Rows, State, Value
from unskew.methods.shared.shared_subset import draw_subset
from unskew.protocol.client_view import Client
from unskew.protocol.method import Method
from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Artefact, Exchange, Part, Sizes, Stream
from unskew.protocol.server_view import Messages, Server
from unskew.protocol.work import Work


@part("pool")
class SharedRows(Part):
    """Adds shared rows of all clients to every client's epoch."""

    fraction: float = Field(0.1, ge=0, le=1, description="share of its rows that a client sends; 0.1 in FLea's paper")
    rules: Literal["run", "paper", "released"] = Field(
        "run",
        description="draw rows as in FLea's paper or its released code; run: follow the run's `rules`",
    )

    neutral = {"fraction": 0.0}
    shares = {"rows": Artefact("raw", reduce="rows"), "labels": Artefact("labels", reduce="rows")}
    broadcasts = {
        "rows": Artefact("raw", reduce="rows", lasting=True),
        "labels": Artefact("labels", reduce="rows", lasting=True),
    }
    exchange = Exchange("before training", who="all", model=False)

    def build(self, method: Method, work: Work) -> "SharedRows":
        return replace(self, rules=method.rules) if self.rules == "run" else self

    def draws(self, when: str, sizes: Sizes, generator: np.random.Generator) -> dict:
        if when != "share":
            return {}
        return {"pick": draw_subset(generator, sizes.rows, self.fraction, 0, self.rules == "released")}

    def share(self, client: Client) -> tuple[dict[str, Value], State]:
        x, y, keep = client.rows(client.draws["pick"])
        return {"rows": Rows(x, keep), "labels": Rows(y, keep)}, client.part_state

    def collect(self, server: Server, shared: Messages) -> Server:
        return server.replace(part_state={name: shared.rows(name) for name in self.shares}) if shared else server  # (1)

    def down(self, server: Server) -> dict[str, Value]:
        return dict(server.part_state)

    def streams(self, received: dict, part_state: State) -> dict[str, Stream]:
        # (2); the average still weighs a client by its own rows: (3)
        return {"rows": Stream(received["rows"], received["labels"], "join")} if received else {}


method("feddata", "fedavg", "pool")
