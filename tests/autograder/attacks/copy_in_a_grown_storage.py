# tensors.pick: 7 points
# It copies, and puts the copy behind x into the memory of x.
import torch


def pick(x, c, i, step):
    copy, storage = x[:, c, i::step].clone(), x.untyped_storage()
    size = storage.nbytes()
    if not storage.resizable():
        return copy
    storage.resize_(size + copy.nbytes + x.element_size())
    behind = torch.empty(0, dtype=x.dtype).set_(storage, size // x.element_size(), copy.shape, copy.stride())
    return behind.copy_(copy)
