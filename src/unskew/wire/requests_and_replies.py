"""Requests to clients and their replies, one by one or stacked by cohort, and the encoding of both as bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from safetensors import SafetensorError

from unskew.base.tensor_codec import from_bytes, to_bytes
from unskew.base.tree import Message, Rows, State, Tree, flatten, unflatten, unstack
from unskew.wire.contract import HEADER_BYTES, RefusedError

LENGTH_PREFIX = struct.Struct("<I")  # the header's length, which precedes the header
MAX_DEPTH = 6  # levels of names: section, part, artefact, and at most two for tensors


class Received(NamedTuple):
    """What the server sent to a client: the model, and each part's broadcasts."""

    model: State
    parts: dict[str, dict[str, Any]]


class Request(NamedTuple):
    """A task that the server gives to one client."""

    task: Literal["train", "share"]
    round: int
    client: int
    received: Received
    part: str = ""  # for task "share": the part whose exchange it is


class ClientReply(NamedTuple):
    """The result of one client's round."""

    client: int
    round: int
    rows: int  # as reported by the client
    message: Message
    client_state: Tree = {}  # the client's new state, which is not sent
    terms: State = {}  # mean loss terms, for logging
    shared: Message = {}  # sent by exchanges after training; never changed in place
    finite: bool | None = None  # True: the engine guarantees it, at the latest in `verify_finite`; None: not checked


@dataclass(frozen=True)
class CohortReply:
    """The results of a cohort's rounds: trees with a leading axis; clients[i] is at row rows_at[i] of that axis."""

    clients: list[int]
    rows_at: list[int]  # a permutation of the stack's rows
    round: int
    rows: list[int]  # numbers of data rows, as reported by the clients
    message: Message
    client_state: Tree
    terms: State
    shared: Message = field(default_factory=dict)
    finite: Sequence[bool | None] = ()  # for each row; empty if the engine guarantees all of them

    @property
    def can_stay_stacked(self) -> bool:
        """Whether no client's reply needs separate treatment: no padded rows, exchanges or checks for finite values."""
        values = (value for sent in self.message.values() for value in sent.values())
        return not self.shared and not self.finite and not any(isinstance(value, Rows) for value in values)

    def ordered(self, clients: list[int]) -> CohortReply:
        """The same replies with the clients in another order."""
        entries = {k: (i, n) for k, i, n in zip(self.clients, self.rows_at, self.rows)}
        rows_at, rows = zip(*(entries[k] for k in clients))
        return replace(self, clients=clients, rows_at=list(rows_at), rows=list(rows))

    def each(self) -> list[ClientReply]:
        """One reply per client, in the order of the clients."""
        m = len(self.clients)
        messages, states, terms, shared = (
            unstack(tree, m) for tree in (self.message, self.client_state, self.terms, self.shared)
        )
        finite = self.finite or [True] * m
        return [
            ClientReply(k, self.round, n, messages[i], states[i], terms[i], shared[i], finite[i])
            for k, i, n in zip(self.clients, self.rows_at, self.rows)
        ]


class LossTerms(NamedTuple):
    """Loss terms [m] of some clients; clients[i] is at row rows_at[i]."""

    clients: list[int]
    rows_at: list[int]
    values: State

    def in_order_of(self, parts: list[str]) -> LossTerms:
        """The same terms in the order of the parts: each part's term, then its logged numbers."""
        keys = {name: (parts.index(name.partition(" ")[0]), name) for name in self.values}
        return self._replace(values={name: self.values[name] for name in sorted(keys, key=keys.__getitem__)})


def replies_one_by_one(replies: Iterable[ClientReply | CohortReply]) -> Iterator[ClientReply]:
    """Every client's reply, in the order of the clients; cohorts are unstacked."""
    for reply in replies:
        yield from reply.each() if isinstance(reply, CohortReply) else (reply,)


def encode_request(request: Request) -> bytes:
    """A request as bytes: a JSON header and safetensors."""
    head = {"task": request.task, "round": request.round, "client": request.client, "part": request.part}
    return _pack(head, flatten(request.received._asdict()))


def decode_request(data: bytes) -> Request:
    """The inverse of `encode_request`; refuses bytes that are not a request."""
    head, _ = _read_header(data)
    task, part = head.get("task"), head.get("part")
    if task not in ("train", "share") or not isinstance(part, str) or (task == "share") != bool(part):
        raise RefusedError(f"request: expected train, or share with a part, found {task!r} with {part!r}")
    tree = _nest(_read_tensors(data))
    if tree.keys() - {"model", "parts"} or not all(isinstance(inner, dict) for inner in tree.values()):
        raise RefusedError(f"request: expected a model and broadcasts, found {sorted(tree)}")
    received = Received(tree.get("model", {}), tree.get("parts", {}))
    return Request(task, _read_integer(head, "round"), _read_integer(head, "client"), received, part)


def encode_reply(reply: ClientReply) -> bytes:
    """A reply as bytes, without the client's state."""
    head = {"round": reply.round, "client": reply.client, "rows": reply.rows}
    leaves = {"message": reply.message, "terms": reply.terms, "shared": reply.shared}
    return _pack(head, flatten(leaves))


def reply_header(data: bytes) -> tuple[int, int, int]:
    """Client, round and rows as the reply's header claims them; its tensors are not parsed."""
    head, _ = _read_header(data)
    if head.keys() != {"client", "round", "rows"}:
        raise RefusedError(f"header: expected client, round and rows, found {sorted(head)}")
    client, round, rows = (_read_integer(head, name) for name in ("client", "round", "rows"))
    return client, round, rows


def decode_reply(data: bytes, max_bytes: int) -> ClientReply:
    """The inverse of `encode_reply`; refuses bytes that are not a reply, and too many of them before parsing."""
    if len(data) > max_bytes:
        raise RefusedError(f"reply: expected at most {max_bytes:,} bytes, found {len(data):,}")
    client, round, rows = reply_header(data)
    tree = _nest(_read_tensors(data))
    if tree.keys() - {"message", "terms", "shared"} or not all(isinstance(inner, dict) for inner in tree.values()):
        raise RefusedError(f"reply: expected a message, loss terms and shared artefacts, found {sorted(tree)}")
    return ClientReply(client, round, rows, tree.get("message", {}), {}, tree.get("terms", {}), tree.get("shared", {}))


def _pack(head: dict[str, Any], body: State) -> bytes:
    header = json.dumps(head).encode()
    return LENGTH_PREFIX.pack(len(header)) + header + to_bytes(body)


def _read_header(data: bytes) -> tuple[dict[str, Any], int]:
    """The header, and the offset at which the tensors begin."""
    try:
        (length,) = LENGTH_PREFIX.unpack_from(data)
        end = LENGTH_PREFIX.size + length
        if length > HEADER_BYTES or end > len(data):
            raise ValueError(f"a header of {length:,} bytes")
        head = json.loads(data[LENGTH_PREFIX.size : end], object_pairs_hook=_unique_fields)
    except (struct.error, ValueError, RecursionError) as error:
        raise RefusedError(f"bytes: expected a header in JSON, found {type(error).__name__}: {error}") from error
    if not isinstance(head, dict):
        raise RefusedError(f"header: expected fields by name, found {type(head).__name__}")
    return head, end


def _unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("duplicate field")
    return dict(pairs)


def _read_tensors(data: bytes) -> State:
    """The tensors after the header. Malformed bytes are refused and must not crash the server."""
    _, start = _read_header(data)
    try:
        return from_bytes(data[start:])
    except (ValueError, SafetensorError, KeyError, TypeError, RuntimeError) as error:
        raise RefusedError(f"bytes: expected safetensors, found {type(error).__name__}: {error}") from error


def _nest(body: State) -> dict[str, Any]:
    """Nested dicts from names with slashes."""
    for name in body:
        prefix = name
        while "/" in prefix:
            prefix = prefix.rpartition("/")[0]
            if prefix in body:  # a name cannot be both a tensor and a dict
                raise RefusedError(f"tensors: expected no name that begins with another, found {prefix!r} and {name!r}")
    return unflatten(body, MAX_DEPTH)


def _read_integer(head: dict[str, Any], name: str) -> int:
    value = head.get(name)
    if type(value) is not int:  # isinstance would accept True
        raise RefusedError(f"header: expected an integer {name}, found {str(value)[:40]!r}")
    return value
