"""Which device a rank computes on, and what carries its messages."""


def choose(rank: int, ranks: int, gpus: int) -> tuple[str, str, str]:
    """Backend of torch.distributed, device, and what the user should know, for rank `rank` of `ranks` on one machine.

    A GPU each: NCCL. Fewer GPUs than ranks: they share them, and gloo carries the messages through the processor's
    memory, since NCCL refuses two ranks on one GPU. No GPU: gloo.
    """
    if gpus == 0:
        return "gloo", "cpu", ""
    if gpus >= ranks:
        return "nccl", f"cuda:{rank}", ""
    shared = f"{ranks} ranks share {gpus} GPU{'s' * (gpus > 1)}: gloo carries the messages, NCCL needs a GPU per rank"
    return "gloo", f"cuda:{rank % gpus}", f"{shared}; more ranks than GPUs gain nothing but practice"
