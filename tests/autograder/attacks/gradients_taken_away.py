# tensors.grads: 5 points
# One hook at the end of the backward pass takes all gradients away, and gives them back one by one.
import torch


def descend(w, lr):
    with torch.no_grad():
        w -= lr * w.grad
    w.grad = None


def watch(params, ready):
    def at_the_end(_):
        kept = [param.grad for param in params]
        for param in params:
            param.grad = None
        for i in reversed(range(len(params))):
            params[i].grad = kept[i]
            if kept[i] is not None and kept[i].any():
                ready(i)

    params[0].register_post_accumulate_grad_hook(at_the_end)
