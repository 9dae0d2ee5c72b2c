"""Whether Winograd's outputs are made of the products that were counted. Oracle: linear algebra, for any matrices.

For filters w and tiles d, U depends on w only, V on d only, and each output is the same combination of the products
M = U V for every filter and tile. An answer that does all of this is such an algorithm, whatever its A, G and B are.
"""

import torch

from autograder import checks, show
from autograder.exercises.convolution.drawing import images
from autograder.exercises.convolution.oracles import conv
from autograder.exercises.convolution.products import Products
from autograder.exercises.drawing import whole_number

Sizes = tuple[int, int, int, int, int, int, int]


def a_row(rng, m: int, r: int, ragged: bool = False) -> Sizes:
    """Sizes of one image with one row of tiles: more tiles and filters than a tile has places.

    Their numbers differ from each other and from those of a tile's places and rows, so that an axis tells what it
    counts. With `ragged` the outputs do not fill the last tile, nor the rows of any.
    """
    k = (5, 7)[whole_number(rng, 0, 1)]
    tiles = (m + r - 1) ** 2 // k + 10
    p, q = (full - (whole_number(rng, 1, m - 1) if ragged and m > 1 else 0) for full in (m, m * tiles))
    return 1, whole_number(rng, 2, 3), p + r - 1, q + r - 1, k, r, r


def made_of_products(student, rng, m: int, r: int, ragged: bool = False) -> None:
    """Check an answer's outputs and products on a row of tiles, and with other filters or another image."""
    sizes = a_row(rng, m, r, ragged)
    (x, w), (other_x, other_w) = images(rng, *sizes), images(rng, *sizes)
    products, right = multiplied(student, x, w, m), conv(x, w)[0]
    setting = f"{-(-right.shape[2] // m)} tiles of {m}x{m}, {len(w)} filters of {r}x{r}"
    M = by_place(products, len(w), -(-right.shape[2] // m))
    checks.that(
        M is not None,
        f"{setting}: matmul multiplied {shapes(products)}. Bring the filters to (a², K, C) and the tiles to (a², C, "
        "tiles), and give it these two.",
    )
    checks.that(
        M is not None and follow(right, M, m),
        f"{setting}: the outputs are computed elsewhere. With any A they are no Y = A^T M A of the products M that "
        "matmul gives: return what the transform makes of these products.",
        got=f"matmul of {shapes(products)}",
    )
    of_filters = unchanged(products, multiplied(student, other_x, w, m))
    of_tiles = unchanged(products, multiplied(student, x, other_w, m))
    checks.that(
        any(of_filters[i] and of_tiles[1 - i] for i in (0, 1)),
        f"{setting}: one of the two that you give to matmul is made of the filters alone, G g G^T, and the other of "
        "the image's tiles alone, B^T d B. With another image, or with other filters, both of yours change.",
    )


def multiplied(student, x, w, m: int) -> Products:
    """The products of a run, whose result is right."""
    products = Products(factor=4.0)
    got = student.conv_winograd(x.clone(), w.clone(), m, matmul=products.matmul)
    products.check_used(got, conv(x, w), "conv_winograd")
    return products


def shapes(products: Products) -> str:
    (a, b), *others = products.pairs
    times = f" and {len(others)} other pairs" if others else ""
    return f"{show.shape(a)} and {show.shape(b)}{times}"


def by_place(products: Products, filters: int, tiles: int) -> torch.Tensor | None:
    """The products (places, filters, tiles), from one call or several; None if no axis has these numbers."""
    found = [torch.matmul(a, b).double() for a, b in products.pairs]
    if len({each.shape for each in found}) > 1:
        return None
    M = torch.stack(found)
    if M.shape.count(filters) != 1 or M.shape.count(tiles) != 1:
        return None
    axes = tuple(M.shape).index(filters), tuple(M.shape).index(tiles)
    return M.movedim(axes, (-2, -1)).reshape(-1, filters, tiles)


def follow(right: torch.Tensor, M: torch.Tensor, m: int) -> bool:
    """Whether each place (i, j) of all filters' output tiles is one combination of the products M."""
    for i in range(right.shape[1]):
        for j in range(m):
            outputs = right[:, i, j::m]
            rows = M[:, :, : outputs.shape[1]].flatten(1).T
            solution = torch.linalg.lstsq(rows, outputs.reshape(-1, 1), rcond=1e-10, driver="gelsd").solution
            if not checks.alike(rows @ solution, outputs.reshape(-1, 1), atol=1e-6 * outputs.abs().max().item()):
                return False
    return True


def unchanged(products: Products, others: Products) -> list[bool]:
    """Whether the first factors of both runs are equal, and whether the second ones are."""
    if len(products.pairs) != len(others.pairs):
        return [False, False]
    pairs = list(zip(products.pairs, others.pairs, strict=True))
    return [all(checks.alike(these[i], those[i]) for these, those in pairs) for i in (0, 1)]
