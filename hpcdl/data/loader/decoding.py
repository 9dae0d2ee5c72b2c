"""What every sample of a batch has: the fields of one sample, which all others must have too."""

from collections.abc import Sequence

import numpy as np

from hpcdl.data.loader.shard import Field, Sample, about, field_of, fields_of


def fields_for(sample: Sample) -> list[Field]:
    """Return the fields of a batch of samples like this one; raise ValueError for none, or for bytes of any length."""
    return require_fixed(fields_of(sample))


def require_fixed(fields: Sequence[Field]) -> list[Field]:
    """Return `fields` if a batch can have them; raise ValueError for none, or for bytes of any length."""
    for field in fields:
        if field.shape is None:
            raise ValueError(
                f"{field.name} is bytes of any length, and a batch needs one shape for all; give the loader a "
                "`decode` that makes an array of them"
            )
    if not fields:
        raise ValueError("the sample has no fields; decode returns a dict with an array or a number for each field")
    return list(fields)


def require_like(sample: Sample, fields: Sequence[Field], i: int) -> None:
    """Raise ValueError unless decoded sample `i` has exactly these fields, with their dtypes and shapes."""
    if not isinstance(sample, dict) or sample.keys() != {field.name for field in fields}:
        made = ", ".join(map(str, sample)) if isinstance(sample, dict) else f"a {type(sample).__name__}"
        raise ValueError(
            f"decode made {made} from sample {i}, and {', '.join(field.name for field in fields)} from another; every "
            "sample of a batch has the same fields"
        )
    for field in fields:
        value = sample[field.name]
        if type(value) is np.ndarray and value.dtype.str == field.dtype and value.shape == field.shape:
            continue
        if (found := field_of(field.name, value)) != field:
            raise ValueError(
                f"decode made {field.name} of {about(found)} from sample {i}, and {about(field)} from another; all "
                "samples of a batch have one dtype and shape"
            )
