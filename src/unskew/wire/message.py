"""What crosses the wall: the server's model and broadcasts go down, replies of one client or of a cohort come up."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from safetensors import SafetensorError

from unskew.base.tensor_codec import from_bytes, to_bytes
from unskew.base.tree import Message, Rows, State, Tree, flatten, unflatten, unstack
from unskew.wire.contract import RefusedError

LENGTH = struct.Struct("<I")  # of the header, before it
LONGEST_HEAD = 64 * 1024  # bytes
DEEPEST = 6  # levels of names: section, part, artefact, and tensors that nest once


class Received(NamedTuple):
    """What the server sent: the model, and each part's broadcasts."""

    model: State
    parts: dict[str, dict[str, Any]]


class Request(NamedTuple):
    """What the server asks of one client."""

    task: Literal["train", "share"]
    round: int
    client: int
    received: Received
    part: str = ""  # whose exchange, if it is one


class ClientReply(NamedTuple):
    """What one client's round gave."""

    client: int
    round: int
    rows: int  # as the client reports them
    message: Message
    client_state: Tree = {}  # the client's new state, which stays on its side
    terms: State = {}
    shared: Message = {}  # what exchanges after training sent; never changed in place
    finite: bool | None = None  # True where the engine answers for it, at the latest in `verify_finite`; None: look


@dataclass(frozen=True)
class CohortReply:
    """What the rounds of a cohort gave: trees with a leading axis, whose row at[i] is that of clients[i]."""

    clients: list[int]
    at: list[int]  # all rows of the stack, in the order of the clients
    round: int
    rows: list[int]  # of the clients' data, as they report them
    message: Message
    client_state: Tree
    terms: State
    shared: Message = field(default_factory=dict)
    finite: Sequence[bool | None] = ()  # of each row; empty where the engine answers for all of them

    @property
    def alike(self) -> bool:
        """Whether nothing has to be seen client by client: rows of padding, exchanges, numbers that are not finite."""
        values = (value for sent in self.message.values() for value in sent.values())
        return not self.shared and not self.finite and not any(isinstance(value, Rows) for value in values)

    def ordered(self, clients: list[int]) -> CohortReply:
        """The same clients in another order."""
        place = {k: (i, n) for k, i, n in zip(self.clients, self.at, self.rows)}
        at, rows = zip(*(place[k] for k in clients))
        return replace(self, clients=clients, at=list(at), rows=list(rows))

    def each(self) -> list[ClientReply]:
        """One by one, in the order of the clients."""
        m = len(self.clients)
        said, kept, terms, shared = (
            unstack(tree, m) for tree in (self.message, self.client_state, self.terms, self.shared)
        )
        fine = self.finite or [True] * m
        return [
            ClientReply(k, self.round, n, said[i], kept[i], terms[i], shared[i], fine[i])
            for k, i, n in zip(self.clients, self.at, self.rows)
        ]


class LossTerms(NamedTuple):
    """Loss terms [m] of some clients; row at[i] is that of clients[i]."""

    clients: list[int]
    at: list[int]
    values: State

    def in_order_of(self, parts: list[str]) -> LossTerms:
        """A part's term, then the numbers beside it, in the order of the parts."""
        places = {name: (parts.index(name.partition(" ")[0]), name) for name in self.values}
        return self._replace(values={name: self.values[name] for name in sorted(places, key=places.__getitem__)})


def replies_one_by_one(found: Iterable[ClientReply | CohortReply]) -> Iterator[ClientReply]:
    """Every client's outcome, in the order of the clients."""
    for some in found:
        yield from some.each() if isinstance(some, CohortReply) else (some,)


def encode_request(request: Request) -> bytes:
    """A request as bytes: a JSON header and safetensors."""
    head = {"task": request.task, "round": request.round, "client": request.client, "part": request.part}
    return _pack(head, flatten(request.received._asdict()))


def decode_request(data: bytes) -> Request:
    """The inverse; refuses bytes that are no request."""
    head, _ = _header(data)
    task, part = head.get("task"), head.get("part")
    if task not in ("train", "share") or not isinstance(part, str) or (task == "share") != bool(part):
        raise RefusedError(f"request: expected train, or share with a part, found {task!r} with {part!r}")
    tree = _tree(_tensors(data))
    if tree.keys() - {"model", "parts"} or not all(isinstance(inner, dict) for inner in tree.values()):
        raise RefusedError(f"request: expected a model and broadcasts, found {sorted(tree)}")
    received = Received(tree.get("model", {}), tree.get("parts", {}))
    return Request(task, _integer(head, "round"), _integer(head, "client"), received, part)


def encode_reply(reply: ClientReply) -> bytes:
    """What leaves a client, as bytes; its state does not."""
    head = {"round": reply.round, "client": reply.client, "rows": reply.rows}
    leaves = {"message": reply.message, "terms": reply.terms, "shared": reply.shared}
    return _pack(head, flatten(leaves))


def reply_header(data: bytes) -> tuple[int, int, int]:
    """Client, round and rows that a reply claims; its tensors are not looked at."""
    head, _ = _header(data)
    if head.keys() != {"client", "round", "rows"}:
        raise RefusedError(f"header: expected client, round and rows, found {sorted(head)}")
    client, round, rows = (_integer(head, name) for name in ("client", "round", "rows"))
    return client, round, rows


def decode_reply(data: bytes, most_bytes: int) -> ClientReply:
    """The inverse of `encode_reply`; refuses what is too large before it is parsed, and bytes that are no reply."""
    if len(data) > most_bytes:
        raise RefusedError(f"reply: expected at most {most_bytes:,} bytes, found {len(data):,}")
    client, round, rows = reply_header(data)
    tree = _tree(_tensors(data))
    if tree.keys() - {"message", "terms", "shared"} or not all(isinstance(inner, dict) for inner in tree.values()):
        raise RefusedError(f"reply: expected a message, loss terms and shared artefacts, found {sorted(tree)}")
    return ClientReply(client, round, rows, tree.get("message", {}), {}, tree.get("terms", {}), tree.get("shared", {}))


def _pack(head: dict[str, Any], body: State) -> bytes:
    header = json.dumps(head).encode()
    return LENGTH.pack(len(header)) + header + to_bytes(body)


def _header(data: bytes) -> tuple[dict[str, Any], int]:
    """The header, and where the tensors begin."""
    try:
        (length,) = LENGTH.unpack_from(data)
        end = LENGTH.size + length
        if length > LONGEST_HEAD or end > len(data):
            raise ValueError(f"a header of {length:,} bytes")
        head = json.loads(data[LENGTH.size : end], object_pairs_hook=_once)
    except (struct.error, ValueError, RecursionError) as error:
        raise RefusedError(f"bytes: expected a header in JSON, found {type(error).__name__}: {error}") from error
    if not isinstance(head, dict):
        raise RefusedError(f"header: expected fields by name, found {type(head).__name__}")
    return head, end


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a field that is given twice")
    return dict(pairs)


def _tensors(data: bytes) -> State:
    """The tensors after the header; whatever is wrong with the bytes is a reason to refuse them, and no crash."""
    _, start = _header(data)
    try:
        return from_bytes(data[start:])
    except (ValueError, SafetensorError, KeyError, TypeError, RuntimeError) as error:
        raise RefusedError(f"bytes: expected safetensors, found {type(error).__name__}: {error}") from error


def _tree(body: State) -> dict[str, Any]:
    """Nested dicts by the slashes in the names."""
    for name in body:
        folder = name
        while "/" in folder:
            folder = folder.rpartition("/")[0]
            if folder in body:  # one of the two would be lost
                raise RefusedError(f"tensors: expected names that nest, found {folder!r} and {name!r}")
    return unflatten(body, DEEPEST)


def _integer(head: dict[str, Any], name: str) -> int:
    value = head.get(name)
    if type(value) is not int:  # True is an int, too
        raise RefusedError(f"header: expected a whole number as {name}, found {str(value)[:40]!r}")
    return value
