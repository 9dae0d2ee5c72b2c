# attention.block_work: 0 points, flagged
# The profiler counts the products of a block, which the exercise asks to count by hand.
import torch


def block_work(b, n, h, heads):
    x, q = torch.zeros(b * n, h), torch.zeros(b * heads, n, h // heads)
    with torch.profiler.profile(with_flops=True, record_shapes=True) as counted:
        x @ torch.zeros(h, 12 * h)
        torch.bmm(torch.bmm(q, q.transpose(1, 2)), q)
    operations = sum(event.flops or 0 for event in counted.events() if event.name in ("aten::mm", "aten::bmm"))
    return 12 * h * h, operations, 12 * b * n * h + b * heads * n**2
