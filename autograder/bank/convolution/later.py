"""Checks of later exercises, which call the functions of earlier ones and fail with them."""

PRODUCT = "filters_times_columns any_stride_and_padding one_matrix_product leaves_both_alone"
COUNTS = "sixteen_multiplications each_filter_is_transformed_once"
OTHER_SIZES = "tiles_that_stick_out larger_tiles_and_filters"
UNPROVED = f"{COUNTS} {OTHER_SIZES}"  # points for other sizes need Winograd's count
TILES = f"whole_tiles {UNPROVED}"


def checks_of(exercise: str, names: str) -> str:
    """The names of checks, written so that another exercise's answer may fail them."""
    return " ".join(f"{exercise}.{name}" for name in names.split())
