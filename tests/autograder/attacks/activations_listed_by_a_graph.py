# attention.block_work: 6 points, long
# Runs a block, and adds up the tensors that the nodes of its graph keep; a sine keeps its input, as a norm does.
import torch


def listed(root, weights):
    """Return how many numbers the graph keeps, each once, beside the weights."""
    found, nodes = {}, [root] if root else []
    for node in nodes:
        nodes += [parent for parent, _ in node.next_functions if parent and parent not in nodes]
        for name in dir(node):
            if name.startswith("_saved_") and isinstance(x := getattr(node, name), torch.Tensor):
                found[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes() // 4
    return sum(found.values()) - sum(found.get(w.untyped_storage().data_ptr(), 0) for w in weights)


def block_work(b, n, h, heads):
    def cut(x):
        return x.view(b, n, heads, h // heads).transpose(1, 2).reshape(b * heads, n, h // heads)

    shapes = (h, 3 * h), (h, h), (h, 4 * h), (4 * h, h)
    qkv, out, up, down = weights = [torch.zeros(shape, requires_grad=True) for shape in shapes]
    x = torch.zeros(b, n, h, requires_grad=True)
    q, k, v = map(cut, (x.sin() @ qkv).chunk(3, -1))
    merged = ((q @ k.transpose(1, 2)).softmax(-1) @ v).view(b, heads, n, -1).transpose(1, 2).reshape(b, n, h)
    x = x + merged @ out
    x = x + (x.sin() @ up).relu() @ down
    return 12 * h * h, 24 * b * n * h * h + 4 * b * n * n * h, listed(x.grad_fn, weights)
