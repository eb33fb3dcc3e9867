"""FedData (Zhao et al. 2018): every client trains on its own rows and on a share of everybody's.

    (1)  D = union over all clients of a share of their rows, collected before round 1
    (2)  L = mean CE over the epochs of D_k + D, shuffled together
    (3)  w^{t+1} = sum_k p_k w_k,  p_k by the client's own rows alone

Paper: Zhao, Li, Lai, Suda, Civin, Chandra, "Federated Learning with Non-IID Data", arXiv 2018.
FLea's reference, not a method one would use: raw rows leave their clients for good. An epoch is longer by |D|, about 50
times on CIFAR-10 with 100 rows a client, so state the epochs beside its numbers. D has the client's own rows again.
With `preset: released` rows are drawn with replacement and int(share n_k) of them, as in FLea's code. A client that is
away in round 1 gives nothing.
Differs: Zhao et al. deal out a set that the server holds; here, as in FLea, it is collected from the clients. Rows
are shared as they are stored: augmented with `data.augment.frozen` alone.
"""

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from unskew.base.tree import Rows, State, Value
from unskew.methods.shared.shared_subset import subset
from unskew.protocol.client_view import Client
from unskew.protocol.method import Method
from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Artefact, Exchange, Part, Sizes, Stream
from unskew.protocol.server_view import Messages, Server
from unskew.protocol.work import Work


@part("pool")
class SharedRows(Part):
    """Rows of all clients, joined to every client's epoch."""

    fraction: float = Field(0.1, ge=0, le=1, description="of a client's rows that it gives away; 0.1 in FLea's paper")
    preset: Literal["run", "paper", "released"] = Field(
        "run",
        description="how rows are drawn: as FLea's paper or its released code; run: what `preset` of the run says",
    )

    neutral = {"fraction": 0.0}
    shares = {"rows": Artefact("raw", reduce="rows"), "labels": Artefact("labels", reduce="rows")}
    broadcasts = {
        "rows": Artefact("raw", reduce="rows", lasting=True),
        "labels": Artefact("labels", reduce="rows", lasting=True),
    }
    exchange = Exchange("before training", who="all", model=False)

    def build(self, method: Method, work: Work) -> "SharedRows":
        return replace(self, preset=method.preset) if self.preset == "run" else self

    def draws(self, when: str, sizes: Sizes, generator: np.random.Generator) -> dict:
        if when != "share":
            return {}
        return {"pick": subset(generator, sizes.rows, self.fraction, 0, self.preset == "released")}

    def share(self, client: Client) -> tuple[dict[str, Value], State]:
        x, y, keep = client.rows(client.draws["pick"])
        return {"rows": Rows(x, keep), "labels": Rows(y, keep)}, client.part_state

    def collect(self, server: Server, shared: Messages) -> Server:
        return server.replace(part_state={name: shared.rows(name) for name in self.shares}) if shared else server  # (1)

    def down(self, server: Server) -> dict[str, Value]:
        return dict(server.part_state)

    def streams(self, received: dict, part_state: State) -> dict[str, Stream]:
        # (2); weights count the client's own rows, as they always do: (3)
        return {"rows": Stream(received["rows"], received["labels"], "join")} if received else {}


method("feddata", "fedavg", "pool")
