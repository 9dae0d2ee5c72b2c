"""Arithmetic counted while it happens: every torch operation that runs, by the numbers it computes."""

from math import prod

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
ADDITIONS = {aten.add.Tensor, aten.sub.Tensor, aten.add_.Tensor}
MULTIPLICATIONS = {aten.mul.Tensor}
PRODUCTS = {aten.mm.default, aten.bmm.default}
# No arithmetic of the algorithm: memory, and constants of the transforms that do not depend on the data.
MOVES = {
    aten.alias.default,
    aten.view.default,
    aten._unsafe_view.default,
    aten.expand.default,
    aten.permute.default,
    aten.transpose.int,
    aten.t.default,
    aten.slice.Tensor,
    aten.select.int,
    aten.unbind.int,
    aten.unfold.default,
    aten.unsqueeze.default,
    aten.clone.default,
    aten.copy_.default,
    aten.cat.default,
    aten.stack.default,
    aten.flip.default,
    aten.constant_pad_nd.default,
    aten.detach.default,
    aten.lift_fresh.default,
    aten._to_copy.default,
    aten._conj.default,
    aten._conj_physical.default,
    aten.conj_physical.default,
    aten.view_as_real.default,
    aten.arange.default,
    aten.arange.start,
    aten._sparse_coo_tensor_with_dims_and_tensors.default,
    aten.repeat_interleave.Tensor,
    aten.full.default,
}


class Count(TorchDispatchMode):
    """`with Count() as count:` then `count.products`, `count.multiplications`, `count.additions`.

    A product has data on both sides; a multiplication may also be by a constant: a Python number, or a tensor of one
    axis. Integers are indices: theirs is no arithmetic. Raises NotImplementedError for operations it does not know.
    """

    def __init__(self):
        super().__init__()
        self.products = self.multiplications = self.additions = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        if function in MOVES:
            return result
        self._count(function, result, arguments)
        return result

    def _count(self, function, result, arguments):
        numbers, complex_ = result.numel(), result.is_complex()
        if not result.is_floating_point() and not complex_:
            return
        if function in ADDITIONS:
            self.additions += numbers * (2 if complex_ else 1)
        elif function in MULTIPLICATIONS:
            constant = not isinstance(arguments[1], torch.Tensor) or arguments[1].dim() <= 1
            self._multiply(numbers, complex_, constant)
        elif function in PRODUCTS:
            self._matrix_product(result, arguments, complex_)
        else:
            raise NotImplementedError(f"{function} is not counted")

    def _multiply(self, numbers, complex_, constant):
        self.multiplications += numbers * (4 if complex_ else 1)
        self.additions += numbers * (2 if complex_ else 0)
        if not constant:
            self.products += numbers * (4 if complex_ else 1)

    def _matrix_product(self, result, arguments, complex_):
        left = arguments[0]
        if left.is_sparse:  # every stored number meets every column, and rows are summed
            products = left._nnz() * result.shape[-1]
        else:
            products = prod(result.shape) * left.shape[-1]
        self._multiply(products, complex_, constant=False)
        self.additions += (products - result.numel()) * (2 if complex_ else 1)


@pytest.fixture
def count():
    """Operations counted inside `with count:`."""
    return Count()
