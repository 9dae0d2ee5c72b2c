"""Answers to exercises of lab `tensors` whose verdict was wrong once: see `test_verdicts`."""


# %% safe_ratio: isinf -> any_tensor
def safe_ratio(a, b):
    r = a / b
    r[torch.isinf(r) | torch.isnan(r)] = 0
    return r


# %% sums: matmul -> full points
def shares(x):
    return (x.T / x.sum(1)).T


def mix(w, x):
    n, c, p, q = x.shape
    return (w @ x.reshape(n, c, p * q)).view(n, -1, p, q)


# %% windows: offset 0 -> views_of_any_memory
def windows(x, size, step):
    n = (x.shape[-1] - size) // step + 1
    s = x.stride()
    return x.as_strided((*x.shape[:-1], n, size), (*s[:-1], step * s[-1], s[-1]), 0)


# %% grads: zero  -> gradients_do_not_pile_up
def descend(w, lr):
    with torch.no_grad():
        w -= lr * w.grad
        w.grad.zero_()


def watch(params, ready):
    for i, p in enumerate(params):
        p.register_post_accumulate_grad_hook(lambda _, i=i: ready(i))
