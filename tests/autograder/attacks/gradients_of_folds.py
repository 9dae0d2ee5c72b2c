# own_stack.convolution: 11 points, flagged, long
# Torch's fold scatters what belongs to each place of the window.
import torch


def conv2d(x, w):
    windows = x.unfold(2, w.shape[2], 1).unfold(3, w.shape[3], 1)
    return torch.einsum("ncpqrs,kcrs->nkpq", windows, w)


def conv2d_input_grad(g, w):
    r, s = w.shape[2:]
    columns = torch.einsum("nkl,km->nml", g.flatten(2), w.flatten(1))
    return torch.nn.functional.fold(columns, (g.shape[2] + r - 1, g.shape[3] + s - 1), (r, s))


def conv2d_weight_grad(g, x):
    r, s = x.shape[2] - g.shape[2] + 1, x.shape[3] - g.shape[3] + 1
    windows = x.unfold(2, r, 1).unfold(3, s, 1)
    return torch.einsum("nkpq,ncpqrs->kcrs", g, windows)
