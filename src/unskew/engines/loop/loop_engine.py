"""The loop engine: clients one after another with ordinary autograd, one thread each, `workers` at a time.

Results never depend on `workers`: every client is trained by one thread in whichever process, rows are scored in fixed
chunks, and replies are read in the order of the clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from unskew.base.tree import State, Tree, flatten, flatten_parts, unflatten, unflatten_parts
from unskew.client.client_rows import to_device
from unskew.client.serve import serve, train
from unskew.engines.channels_last import replace_flatten, to_channels_last
from unskew.engines.engine import AddUp, ConfusionScore, EngineContext, one_thread, sum_scores
from unskew.engines.loop.workers import Workers, can_fork
from unskew.engines.padding import PaddingCount
from unskew.protocol.server_view import StandIn
from unskew.wire.requests_and_replies import ClientReply, Received, Request

CHUNK = 500  # rows scored per request
REPLY_FIELDS = ("message", "terms", "shared")  # of a ClientReply, by which a worker names its tensors
STATE_PREFIX = "client_state/"  # of the tensors of the client's new state
MAX_DEPTH = 9  # more levels than any message has
Requests = Iterator[tuple[dict[str, Any], State]]  # lazy, because a client's state may be read from a file


class LoopEngine:
    """Trains and scores client by client, inline or in forked workers."""

    name = "loop"

    def __init__(self, context: EngineContext, workers: int) -> None:
        self.context, self.device = context, context.device
        if self.device.type == "cpu":
            model = context.model.with_layers(replace_flatten)
            self.context = replace(context, model=model, layout=partial(to_channels_last, model=model))
        self.add_up: AddUp | None = None  # replies come one by one
        self._received, self._padding = Received({}, {}), PaddingCount()
        parallel = workers > 1 and can_fork() and self.device.type == "cpu"
        self.workers = workers if parallel else 1
        self._pool = Workers(workers, self._handle) if parallel else None

    @property
    def padding_share(self) -> float:
        return self._padding.share

    def close(self) -> None:
        if self._pool:
            self._pool.close()

    def train(
        self, round: int, received: Received, clients: list[int], state_of: Callable[[int], Tree]
    ) -> Iterator[ClientReply]:
        """Each client's reply, in the order given."""
        requests = (({"do": "train", "round": round, "client": k}, flatten_parts(state_of(k))) for k in clients)
        return self._replies(received, requests)

    def share(
        self, round: int, part: str, received: Received, clients: list[int], state_of: Callable[[int], Tree]
    ) -> Iterator[ClientReply]:
        """One part's exchange on each client."""
        requests = (
            ({"do": "share", "round": round, "part": part, "client": k}, flatten_parts(state_of(k))) for k in clients
        )
        return self._replies(received, requests)

    def stand_in(
        self, round: int, received: Received, rows: dict[int, StandIn], states: dict[int, Tree]
    ) -> Iterator[ClientReply]:
        """Train stand-ins inline: only this process has their rows."""
        client_rows = self.context.stand_in_rows(rows)
        for client in rows:
            state = to_device(states.get(client) or self.context.newcomer_state(client, client_rows), self.device)
            with one_thread():
                request = Request("train", round, client, received)
                reply, *row_counts = train(self.context, client_rows, request, state)
            self._padding.add(*row_counts)
            yield reply

    def verify_finite(self) -> bool:
        """No reply claims to be finite, so the server checks each one when it arrives."""
        return True

    def evaluate(self, round: int, received: Received, split: str) -> ConfusionScore:
        """Score a split, chunk by chunk."""
        rows = len(self.context.splits[split].y)
        header = {"do": "score", "round": round, "split": split}
        spans = [{"first": a, "last": min(a + CHUNK, rows)} for a in range(0, rows, CHUNK)]
        requests: Requests = ((header | span, {}) for span in spans)
        return sum_scores(
            ConfusionScore(body["confusion"], float(body["loss"])) for _, body in self._ask(received, requests)
        )

    def _replies(self, received: Received, requests: Requests) -> Iterator[ClientReply]:
        for header, body in self._ask(received, requests):
            tree = unflatten({name: t for name, t in body.items() if not name.startswith(STATE_PREFIX)}, MAX_DEPTH)
            state = {name.removeprefix(STATE_PREFIX): t for name, t in body.items() if name.startswith(STATE_PREFIX)}
            self._padding.add(*header["computed"])
            sent = {name: tree.get(name, {}) for name in REPLY_FIELDS}
            yield ClientReply(
                header["client"], header["round"], header["rows"], client_state=unflatten_parts(state), **sent
            )

    def _ask(self, received: Received, requests: Requests) -> Iterator[tuple[dict[str, Any], State]]:
        if self._pool:
            self._pool.broadcast({"do": "receive", "answer": False}, flatten(received._asdict()))
            with one_thread():  # handling a reply would compete with the workers for cores: 28 instead of 5 ms
                yield from self._pool.ask(requests)
            return
        self._received = received
        with one_thread():  # also while the consumer handles a reply: sums of small tensors are slower on many cores
            for header, body in requests:
                with one_thread():  # the consumer may have changed the thread count between yields
                    answer = self._handle(header, body)
                yield answer

    def _handle(self, header: dict[str, Any], body: State) -> tuple[dict[str, Any], State]:
        """Answer one request, in a worker or inline."""
        if header["do"] == "receive":
            tree = unflatten(body, MAX_DEPTH)
            self._received = Received(tree.get("model", {}), tree.get("parts", {}))
            return {}, {}
        if header["do"] == "score":
            score = self.context.score(
                header["round"], self._received, header["split"], header["first"], header["last"]
            )
            return {}, {"confusion": score.confusion, "loss": torch.tensor(score.loss, dtype=torch.float64)}
        request = Request(header["do"], header["round"], header["client"], self._received, header.get("part", ""))
        reply, trained, computed = serve(self.context, request, unflatten_parts(body))
        body = flatten({name: getattr(reply, name) for name in REPLY_FIELDS})
        body |= {f"{STATE_PREFIX}{name}": t for name, t in flatten_parts(reply.client_state).items()}
        reply_header = {name: getattr(reply, name) for name in ("client", "round", "rows")}
        return reply_header | {"computed": (trained, computed)}, body
