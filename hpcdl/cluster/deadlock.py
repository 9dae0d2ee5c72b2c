"""Detect deadlocked ranks from their current waits, long before the time limit."""

VERBS = {"dest": "to send to", "source": "to receive from"}


def stuck(waiting: dict[int, dict], returned: set[int]) -> list[int]:
    """Return the ranks of a cycle in which each waits for the next, or a rank that waits for one that has returned.

    `waiting` holds the situation (`MPIComm.situation`) of each rank that waits. Empty if a message may be in flight: a
    rank with other open messages, or a cycle with a matching send and receive, may only be slow.
    """
    for start in waiting:
        path = [start]
        while (situation := waiting.get(path[-1])) is not None:
            if not situation["ranks"]:  # a collective waits for every rank
                if returned:
                    return [path[-1]]
                break
            if not situation["alone"]:
                break
            target = situation["ranks"][0][1]
            if target in returned:
                return [path[-1]]
            if target in path:
                circle = path[path.index(target) :]
                if len({waiting[rank]["ranks"][0][0] for rank in circle}) == 1:
                    return circle
                break
            path.append(target)
    return []


class Lookout:
    """Notices when the same ranks have been stuck in the same waits for `seconds`: by then a message would have
    arrived."""

    def __init__(self, seconds: float = 2.0):
        self.seconds = seconds
        self._waits: tuple = ()
        self._since = 0.0

    def sees_deadlock(self, waiting: dict[int, dict], returned: set[int], now: float) -> bool:
        waits = tuple((rank, waiting[rank]["number"]) for rank in stuck(waiting, returned))
        if waits != self._waits:
            self._waits, self._since = waits, now
        return bool(waits) and now - self._since >= self.seconds


def explain(waiting: dict[int, dict], returned: set[int], shown: int = 6) -> list[str]:
    """Return a sentence that says which ranks are stuck and what to do; empty if none is known to be stuck."""
    ranks = stuck(waiting, returned)
    links = []
    for rank in ranks:
        if not waiting[rank]["ranks"]:
            others = ", ".join(map(str, sorted(returned)[:shown]))
            name = f"rank{'s' * (len(returned) > 1)} {others}"
            return [f"{waiting[rank]['text']} waits for every rank, and {name} returned without calling it."]
        side, peer = waiting[rank]["ranks"][0]
        links.append(f"rank {rank} waits {VERBS[side]} rank {peer}" + (", which has returned" * (peer in returned)))
    if not links:
        return []
    advice = "" if "returned" in links[0] else " Use sendrecv, or let one of them do the other half first."
    return [f"Deadlock: {', '.join(links[:shown])}{', ...' if len(links) > shown else ''}.{advice}"]
