"""The loop engine: clients one after another with ordinary autograd, one thread each, `workers` at a time.

A client's numbers never depend on `workers`: every client is trained by one thread wherever it runs, rows are scored in
fixed chunks, and answers are taken in the order of the clients.
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
from unskew.engines.engine import AddUp, ConfusionScore, EngineContext, one_thread, sum_of
from unskew.engines.loop.workers import Workers, can_fork
from unskew.engines.padding import PaddingCount
from unskew.protocol.server_view import StandIn
from unskew.wire.message import ClientReply, Received, Request

CHUNK = 500  # rows scored at once
SENT, STATE = ("message", "terms", "shared"), "mine/"  # of a reply, by a worker
DEEP = 9  # more levels than any message has
Requests = Iterator[tuple[dict[str, Any], State]]  # made one by one: a client's state may come from a file


class LoopEngine:
    """Trains and scores client by client, inline or in forked workers."""

    name = "loop"

    def __init__(self, context: EngineContext, workers: int) -> None:
        self.context, self.device = context, context.device
        if self.device.type == "cpu":
            model = context.model.rewritten(replace_flatten)
            self.context = replace(context, model=model, layout=partial(to_channels_last, model=model))
        self.add_up: AddUp | None = None  # answers come one by one
        self._received, self._padding = Received({}, {}), PaddingCount()
        many = workers > 1 and can_fork() and self.device.type == "cpu"
        self.workers = workers if many else 1
        self._pool = Workers(workers, self._handle) if many else None

    @property
    def padding_share(self) -> float:
        return self._padding.share

    def close(self) -> None:
        if self._pool:
            self._pool.close()

    def train(
        self, round: int, received: Received, clients: list[int], mine: Callable[[int], Tree]
    ) -> Iterator[ClientReply]:
        """Every client's outcome, in the order given."""
        requests = (({"do": "train", "round": round, "client": k}, flatten_parts(mine(k))) for k in clients)
        return self._outcomes(received, requests)

    def share(
        self, round: int, part: str, received: Received, clients: list[int], mine: Callable[[int], Tree]
    ) -> Iterator[ClientReply]:
        """One part's exchange on every client."""
        requests = (
            ({"do": "share", "round": round, "part": part, "client": k}, flatten_parts(mine(k))) for k in clients
        )
        return self._outcomes(received, requests)

    def stand_in(
        self, round: int, received: Received, rows: dict[int, StandIn], mine: dict[int, Tree]
    ) -> Iterator[ClientReply]:
        """Stand-ins are trained inline: their rows exist only here."""
        client_rows = self.context.stand_in_rows(rows)
        for client in rows:
            state = to_device(mine.get(client) or self.context.newcomer(client, client_rows), self.device)
            with one_thread():
                request = Request("train", round, client, received)
                reply, *counted = train(self.context, client_rows, request, state)
            self._padding.add(*counted)
            yield reply

    def verify_finite(self) -> bool:
        """Whoever takes a message in looks at it."""
        return True

    def evaluate(self, round: int, received: Received, split: str) -> ConfusionScore:
        """Scores of a split, chunk by chunk."""
        rows = len(self.context.splits[split][1])
        header = {"do": "score", "round": round, "split": split}
        spans = [{"first": a, "last": min(a + CHUNK, rows)} for a in range(0, rows, CHUNK)]
        requests: Requests = ((header | span, {}) for span in spans)
        return sum_of(
            ConfusionScore(body["confusion"], float(body["loss"])) for _, body in self._ask(received, requests)
        )

    def _outcomes(self, received: Received, requests: Requests) -> Iterator[ClientReply]:
        for header, body in self._ask(received, requests):
            tree = unflatten({name: t for name, t in body.items() if not name.startswith(STATE)}, DEEP)
            state = {name.removeprefix(STATE): t for name, t in body.items() if name.startswith(STATE)}
            self._padding.add(*header["computed"])
            sent = {name: tree.get(name, {}) for name in SENT}
            yield ClientReply(
                header["client"], header["round"], header["rows"], client_state=unflatten_parts(state), **sent
            )

    def _ask(self, received: Received, requests: Requests) -> Iterator[tuple[dict[str, Any], State]]:
        if self._pool:
            self._pool.tell({"do": "receive", "answer": False}, flatten(received._asdict()))
            with one_thread():  # taking in a reply would compete with the workers for cores: 28 ms in place of 5
                yield from self._pool.ask(requests)
            return
        self._received = received
        with one_thread():  # also while an answer is taken in: sums of small tensors take longer on many cores
            for header, body in requests:
                with one_thread():  # the consumer may have changed the thread count between yields
                    answer = self._handle(header, body)
                yield answer

    def _handle(self, header: dict[str, Any], body: State) -> tuple[dict[str, Any], State]:
        """One request, in a worker or inline."""
        if header["do"] == "receive":
            tree = unflatten(body, DEEP)
            self._received = Received(tree.get("model", {}), tree.get("parts", {}))
            return {}, {}
        if header["do"] == "score":
            score = self.context.score(
                header["round"], self._received, header["split"], header["first"], header["last"]
            )
            return {}, {"confusion": score.confusion, "loss": torch.tensor(score.loss, dtype=torch.float64)}
        request = Request(header["do"], header["round"], header["client"], self._received, header.get("part", ""))
        reply, trained, computed = serve(self.context, request, unflatten_parts(body))
        body = flatten({name: getattr(reply, name) for name in SENT})
        body |= {f"{STATE}{name}": t for name, t in flatten_parts(reply.client_state).items()}
        about = {name: getattr(reply, name) for name in ("client", "round", "rows")}
        return about | {"computed": (trained, computed)}, body
