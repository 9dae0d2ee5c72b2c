# attention.block_work: 0 points, flagged
# The profiler, begun in C, counts the products of a block, which the exercise asks to count by hand.
import torch


def block_work(b, n, h, heads):
    x, q = torch.zeros(b * n, h), torch.zeros(b * heads, n, h // heads)
    activities = {torch.autograd.ProfilerActivity.CPU}
    settings = torch._C._profiler._ExperimentalConfig()
    config = torch.autograd.ProfilerConfig(
        torch.autograd.ProfilerState.KINETO, True, False, False, True, False, settings
    )
    torch.autograd._prepare_profiler(config, activities)
    torch.autograd._enable_profiler(config, activities)
    x @ torch.zeros(h, 12 * h)
    torch.bmm(torch.bmm(q, q.transpose(1, 2)), q)
    counted = torch.autograd._disable_profiler()
    operations = sum(event.flops() for event in counted.events() if event.name() in ("aten::mm", "aten::bmm"))
    return 12 * h * h, operations, 12 * b * n * h + b * heads * n**2
