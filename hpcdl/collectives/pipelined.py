"""A long message that is added up in pieces, each while the next is on its way."""

import torch


def landing(chunk: torch.Tensor, comm) -> torch.Tensor:
    """Two places for pieces of messages as long as `chunk`; one for the whole where the machine has no pieces."""
    if comm.segment is None or chunk.nbytes <= comm.segment:
        return torch.empty_like(chunk).view(1, -1)
    return torch.empty(2, comm.segment // chunk.element_size(), dtype=chunk.dtype, device=chunk.device)


def sendrecv_add(x: torch.Tensor, dest: int, out: torch.Tensor, source: int, places: torch.Tensor, comm) -> None:
    """Send `x` to `dest`, and add to `out` what `source` sends, through `places` (from `landing`).

    The pieces stay in the processor's cache between their arrival and their addition, which a long message does not.
    """
    if len(places) == 1:
        incoming = places[0, : out.numel()]
        comm.sendrecv(x, dest, incoming, source)
        comm.accumulate(out, incoming)
        return
    length, parts = places.shape[1], out.split(places.shape[1])
    arriving = [places[i % 2, : part.numel()] for i, part in enumerate(parts)]
    sent = [comm.isend(part, dest) for part in x.split(length)]
    receipt = comm.irecv(arriving[0], source)
    for i, part in enumerate(parts):
        following = comm.irecv(arriving[i + 1], source) if i + 1 < len(parts) else None
        receipt.wait()
        comm.accumulate(part, arriving[i])
        receipt = following
    for request in sent:
        request.wait()
