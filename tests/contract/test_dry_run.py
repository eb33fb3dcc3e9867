"""The contract from a dry run matches the messages of clients, for every method and in every phase."""

from typing import Any

import pytest
import torch
from small import federation

from unskew.base.tree import Rows, as_state
from unskew.server.exchanges import exchange_contract
from unskew.server.inbox import Inbox
from unskew.wire.contract import Contract, RefusedError, TensorSpec
from unskew.wire.requests_and_replies import ClientReply


def compare(contract: Contract, message: Any) -> int:
    """Compare every tensor of a message with its spec; return the number of tensors."""
    contract.check(message)
    specs = dict(contract.tensors())
    count = 0
    for part, sent in message.items():
        for name, value in sent.items():
            assert not isinstance(value, Rows)
            for key, t in as_state(value).items():
                spec = specs[f"{part}/{name}/{key}" if key else f"{part}/{name}"]
                shape = tuple(t.shape) if spec.max_rows is None else tuple(t.shape[1:])
                assert (spec.dtype, spec.shape) == (t.dtype, shape)
                count += 1
    assert count == len(specs)
    return count


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "batchnorm"])
def test_contract_matches_the_messages(method: str, norm: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rounds, because broadcasts and messages may change after the first."""
    receive, counts = Inbox.receive, dict[str, int]()

    def compare_and_receive(self: Inbox, reply: ClientReply, known_sender: bool = False) -> bool:
        contract = self.contract(reply.rows)
        count = compare(contract, reply.message)
        for part, (_, share, _) in self.shares.items():
            if part in reply.shared:
                count += compare(share(reply.rows), {part: reply.shared[part]})
        assert {p: a for p, a in contract.declared.items() if p in self.declared} == self.declared
        counts[self.phase] = counts.get(self.phase, 0) + count
        return receive(self, reply, known_sender)

    monkeypatch.setattr(Inbox, "receive", compare_and_receive)
    fed = federation(method, "plain", norm=norm)
    snap = fed.start()
    for _ in range(2):
        snap, report = fed.run_round(snap)
        assert not report.refused
        fed.store.commit()
    assert counts["train"] > 0
    due = [
        p.exchange.when for p in fed.method.parts if p.exchange and p.exchange.when in ("before round", "after merge")
    ]
    assert all(counts.get(when) for when in due)


def test_shared_rows_are_bounded_by_the_number_of_rows() -> None:
    """FLea shares a tenth of the rows, at least one."""
    fed = federation("flea", "plain")
    part = next(p for p in fed.method.parts if p.name == "flea")
    contract, bounds = exchange_contract(fed, 1, fed.received(fed.start()), part), []
    for rows in (1, 11, 100):
        spec = contract(rows).specs["flea"]["labels"]
        assert isinstance(spec, TensorSpec)
        bounds.append(spec.max_rows)
    assert bounds == [1, 1, 10]
    features = torch.zeros(11, *contract(100).specs["flea"]["features"].shape, dtype=torch.float64)  # type: ignore[union-attr]
    message: Any = {"flea": {"labels": torch.zeros(11, dtype=torch.int64), "features": features}}
    with pytest.raises(RefusedError, match="at most 10 rows"):
        contract(100).check(message)
