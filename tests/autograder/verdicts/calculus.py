"""Answers to exercises of lab `calculus` whose verdict was wrong once: see `test_verdicts`."""


# %% logistic: in place grad -> slope_from_the_output
def logistic(x):
    return 1 / (1 + torch.exp(-x))


def logistic_grad(y):
    return y.mul_(1 - y)


# %% gradient: requires f tensor -> any_shape
def gradient(f, x, h=1e-5):
    g = torch.zeros_like(x)
    for i in range(x.numel()):
        e = torch.zeros_like(x).flatten()
        e[i] = h
        e = e.view(x.shape)
        g.view(-1)[i] = ((f(x + e) - f(x - e)) / (2 * h)).item()
    return g


# %% gradient: three evaluations -> any_shape
def gradient(f, x, h=1e-5):
    g = torch.zeros_like(x)
    for i in range(x.numel()):
        e = torch.zeros_like(x).flatten()
        e[i] = h
        e = e.view(x.shape)
        f(x)
        g.view(-1)[i] = (f(x + e) - f(x - e)) / (2 * h)
    return g


# %% chain_gradient: in place -> any_sizes
def chain_gradient(df_dx, dx_ds):
    dx_ds *= df_dx[:, None]
    return dx_ds.sum(0)


# %% grad_check: 1e-3 -> rejects_wrong_gradients
def grad_check(f, grad, x):
    a, m = grad(x), measured_gradient(f, x)
    e = (a - m).abs() / (1e-3 * torch.maximum(a.abs(), m.abs()) + 1e-9)
    w = np.unravel_index(int(e.argmax()), x.shape)
    return bool(e.max() <= 1), tuple(map(int, w))
