"""What errors of Python and torch mean in any exercise, and what to do: for answers whose exercise knows no more."""

WHOLE = "A float is where a whole number must be. `/` gives a float, even of two ints; `//` gives an int."
NONE = (
    "Something here is None: a function without `return` gives it, a method that works in place, such as "
    "`comm.all_reduce` or `list.append`, or a `.grad` before its backward pass."
)
PRODUCT = "In `a @ b` the last size of a must be the first of the last two sizes of b. Print both shapes."
ONE_BY_ONE = "This works on one number. For a tensor use torch's function, such as torch.exp for math.exp."
QUESTION = "`if` cannot ask many numbers at once: choose by torch.where, or ask .any() or .all() of them."
STRETCH = "Two shapes are aligned at their right ends: two sizes there must be equal, or one of them 1. Print both."
SAME_AXES = "All must have as many dimensions: x[:, 1:2] keeps one that x[:, 1] drops. Print the shapes."
JOINED = "torch.stack makes a new dimension of equal shapes; torch.cat joins along one that is there. Print the shapes."
DTYPES = (
    "Two dtypes meet here: make new tensors with the argument's, as in dtype=x.dtype, or convert with .to(x.dtype)."
)
NO_GRAD = (
    "There is no gradient to compute here: something between the parameters and the loss ends it, as .item() does."
)
LEAF = "A parameter is changed where autograd looks: change it inside `with torch.no_grad():`, or make a new tensor."
VIEWED = "The elements do not lie in memory in this order, as after .T or .transpose: use .reshape instead of .view."
RESIZED = "The sizes of the new shape must multiply to the number of elements. Print the shape."
AXIS = "There is no such dimension: they count from 0, and a single row x[i] has one less than x. Print the shape."
PAST_THE_END = "The index is beyond the end: n items have the indices 0 to n - 1. Print the length, and the index."
UNPACKED = "The number of names on the left differs from the number of values on the right. Print the value."
WHOLE_INDEX = "Indices are whole numbers or bools: convert them with .long()."
EMPTY = "One of the two is empty. A slice [a:-b] is empty if b is 0: end it at a + size instead."
RANK = "There is no such rank. On a ring count modulo comm.size; elsewhere first ask whether the partner exists."

MEANINGS = {  # words of an error -> what it means, and what to do
    "'float' object cannot be interpreted as an integer": WHOLE,
    "must be tuple of ints,but got float": WHOLE,
    "slice indices must be integers": WHOLE,
    "indices must be integers or slices, not float": WHOLE,
    "a rank is an int": WHOLE,
    "'NoneType' and ": NONE,
    "and 'NoneType'": NONE,
    "'NoneType' object ": NONE,
    "only one element tensors can be converted": ONE_BY_ONE,
    "elements cannot be converted to Scalar": ONE_BY_ONE,
    "Boolean value of Tensor with more than one value": QUESTION,
    "shapes cannot be multiplied": PRODUCT,
    "size mismatch, got": PRODUCT,
    "size of the tensor (0)": EMPTY,
    "size of tensor a (0)": EMPTY,
    "size of tensor b (0)": EMPTY,
    "must match the size of tensor": STRETCH,
    "must have same number of dimensions": SAME_AXES,
    "stack expects each tensor to be equal size": JOINED,
    "Sizes of tensors must match except in dimension": JOINED,
    "have the same dtype": DTYPES,
    "does not require grad and does not have a grad_fn": NO_GRAD,
    "leaf Variable that requires grad": LEAF,
    "view size is not compatible": VIEWED,
    "is invalid for input of size": RESIZED,
    "Dimension out of range": AXIS,
    "too many indices for tensor": AXIS,
    "index out of range": PAST_THE_END,
    "is out of bounds for dimension": PAST_THE_END,
    "values to unpack": UNPACKED,
    "tensors used as indices must be": WHOLE_INDEX,
    "; ranks are 0 to ": RANK,
}


def in_general(message: str) -> str:
    """Return what an error means in any exercise, and what to do; empty if there is no sentence for it."""
    return next((sentence for words, sentence in MEANINGS.items() if words in message), "")
