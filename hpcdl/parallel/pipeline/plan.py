"""Prepare a schedule to run: find which message each op needs and sends, and check that everything is possible."""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from hpcdl.cost.pipeline import play
from hpcdl.cost.timeline import Orders, split_backward
from hpcdl.parallel.schedules import Place, looped


class PlannedMessage(NamedTuple):
    """The input of F or B of a microbatch in part g of the network: the output of part g - 1, or the gradient of g +
    1."""

    op: str
    microbatch: int
    part: int


class Plan:
    """`orders` for the parts of the network in `parts`, from first to last, each a (stage, chunk).

    Raises ValueError for an op that is missing, appears twice, does not belong to the network, or waits forever.
    """

    def __init__(self, orders: Orders, parts: Sequence[Place] | None, microbatches: int):
        chunks = 1 + max((chunk for order in orders for *_, chunk in order), default=0)
        self.orders, self.parts = orders, looped(len(orders), chunks) if parts is None else list(parts)
        self.last = len(self.parts) - 1
        self.part_of = {place: part for part, place in enumerate(self.parts)}
        play(orders, 1.0, 1.0, 1.0, parts=self.parts)  # raises for all but what is missing
        self.apart = [split_backward(order) for order in orders]
        self.forward_only = not any(op[0] == "B" for order in orders for op in order)
        self._require_all(microbatches)
        self._turn = [{tuple(op): n for n, op in enumerate(order)} for order in orders]

    def stage_of(self, part: int) -> int:
        return self.parts[part][0]

    def needs(self, op: str, microbatch: int, part: int) -> PlannedMessage | None:
        """Return the message that an op waits for; None for the batch itself and for W."""
        return None if op == "W" or (op == "F" and part == 0) else PlannedMessage(op, microbatch, part)

    def arriving(self, stage: int) -> list[PlannedMessage]:
        """Return the messages from other stages to this one, in the order of their use."""
        needed = (self.needs(op, k, self.part_of[stage, chunk]) for op, k, chunk in self.orders[stage])
        return [message for message in needed if message and self.sender(message) != stage]

    def sender(self, message: PlannedMessage) -> int:
        """Return the stage that sends the message; the loss of the last part is as a message from its own stage."""
        return self.stage_of(self._from(message))

    def sent_at(self, message: PlannedMessage) -> int:
        """Return the turn of the sender that computes the message."""
        part = self._from(message)
        op = "F" if message.op == "B" and message.part == self.last else message.op
        return self._turn[self.stage_of(part)][op, message.microbatch, self.parts[part][1]]

    def taken_at(self, message: PlannedMessage) -> int:
        """Return the turn of the receiver that needs the message."""
        stage, chunk = self.parts[message.part]
        return self._turn[stage][message.op, message.microbatch, chunk]

    def _from(self, message: PlannedMessage) -> int:
        return message.part - 1 if message.op == "F" else min(message.part + 1, self.last)

    def _require_all(self, microbatches: int) -> None:
        kinds = "F" if self.forward_only else "FBW" if any(self.apart) else "FB"
        for stage, chunk in self.parts:
            done = set(map(tuple, self.orders[stage]))
            for op, k in product(kinds, range(microbatches)):
                if (op, k, chunk) not in done:
                    raise ValueError(
                        f"orders[{stage}] lacks {(op, k, chunk)}; each of {microbatches} microbatches passes "
                        f"{', '.join(kinds)} of every chunk once"
                    )
        if extra := [(stage, *op) for stage, order in enumerate(self.orders) for op in order if op[1] >= microbatches]:
            raise ValueError(f"orders[{extra[0][0]}] has {extra[0][1:]}, and the batch has {microbatches} microbatches")
