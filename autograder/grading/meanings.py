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
    "must match the size of tensor": STRETCH,
    "; ranks are 0 to ": RANK,
}


def in_general(message: str) -> str:
    """Return what an error means in any exercise, and what to do; empty if there is no sentence for it."""
    return next((sentence for words, sentence in MEANINGS.items() if words in message), "")
