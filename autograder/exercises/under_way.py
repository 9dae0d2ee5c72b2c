"""A check of messages under way that many exercises share: each is waited for, and left alone until then."""

from collections.abc import Callable
from typing import Any

from autograder import checks

WHY = (
    "Until `request.wait()` has returned the tensor is the message: the receiver may come late, and get what you write "
    "into it meanwhile. A request without a wait may never complete. Until then each message that is received needs a "
    "tensor of its own."
)


def waited_for(run: Any, setting: str) -> None:
    """Every isend and irecv of the run is waited for, and nothing else uses its tensor before."""
    if run.careless:
        raise checks.CheckFailure(f"{setting}: {run.careless[0]}.", got="; ".join(run.careless[:6]), why=WHY)


def waits_as_often(run: Any, setting: str, counted: Callable[[], Any]) -> None:
    """An answer that waits where its messages are counted, and loses points if not, waits in this run, too.

    `counted` makes a run such as those that are counted.
    """
    if run.careless and not counted().careless:
        waited_for(run, setting)
