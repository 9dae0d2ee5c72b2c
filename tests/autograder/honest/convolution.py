"""Lab 05 answered rightly, in many styles: each cell below replaces the reference's answer."""


# %% conv_direct: a loop over outputs
def conv_direct(x, w, stride=1, padding=0):
    x = functional.pad(x, (padding, padding, padding, padding))
    (N, C, H, W), (K, C, R, S) = x.shape, w.shape
    rows = range(0, H - R + 1, stride)
    columns = range(0, W - S + 1, stride)
    y = torch.zeros(N, K, len(rows), len(columns), dtype=x.dtype)
    for p, top in enumerate(rows):
        for q, left in enumerate(columns):
            window = x[:, :, top : top + R, left : left + S]
            y[:, :, p, q] = torch.einsum("ncrs,kcrs->nk", window, w)
    return y


# %% conv_direct: strided views and tensordot
def conv_direct(x, w, stride=1, padding=0):
    xp = torch.zeros(*x.shape[:2], x.shape[2] + 2 * padding, x.shape[3] + 2 * padding, dtype=x.dtype)
    xp[:, :, padding : padding + x.shape[2], padding : padding + x.shape[3]] = x
    windows = xp.unfold(2, w.shape[2], stride).unfold(3, w.shape[3], stride)
    return torch.tensordot(windows, w, dims=([1, 4, 5], [1, 2, 3])).permute(0, 3, 1, 2)


# %% conv_direct: a sum of products, channel by channel
def conv_direct(x, w, stride=1, padding=0):
    K, C, R, S = w.shape
    x = functional.pad(x, [padding] * 4)
    P = (x.shape[2] - R) // stride + 1
    Q = (x.shape[3] - S) // stride + 1

    def seen(c, i, j):
        return x[:, c, i:, j:][:, : (P - 1) * stride + 1 : stride, : (Q - 1) * stride + 1 : stride]

    outputs = []
    for k in range(K):
        outputs.append(sum(w[k, c, i, j] * seen(c, i, j) for c in range(C) for i in range(R) for j in range(S)))
    return torch.stack(outputs, dim=1)


# %% conv_direct: NumPy's windows
import numpy as np


def conv_direct(x, w, stride=1, padding=0):
    a = np.pad(x.numpy(), ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(a, w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    return torch.from_numpy(np.ascontiguousarray(np.einsum("ncpqrs,kcrs->nkpq", windows, w.numpy())))


# %% im2col: advanced indices
def window_places(H, W, r, s, stride, padding):
    P, Q = (H + 2 * padding - r) // stride + 1, (W + 2 * padding - s) // stride + 1
    i, j, p, q = torch.meshgrid(*map(torch.arange, (r, s, P, Q)), indexing="ij")
    return (p * stride + i).reshape(r * s, P * Q), (q * stride + j).reshape(r * s, P * Q)


def im2col(x, r, s, stride=1, padding=0):
    rows, columns = window_places(*x.shape[2:], r, s, stride, padding)
    return functional.pad(x, (padding,) * 4)[:, :, rows, columns].flatten(1, 2)


def col2im(columns, shape, r, s, stride=1, padding=0):
    N, C, H, W = shape
    at_row, at_column = window_places(H, W, r, s, stride, padding)
    flat = torch.zeros(N, C, (H + 2 * padding) * (W + 2 * padding), dtype=columns.dtype)
    index = (at_row * (W + 2 * padding) + at_column).flatten()
    flat.index_add_(2, index, columns.reshape(N, C, -1))
    image = flat.view(N, C, H + 2 * padding, W + 2 * padding)
    return image[:, :, padding : padding + H, padding : padding + W]


# %% im2col: a list of windows, one per output
def im2col(x, r, s, stride=1, padding=0):
    padded = functional.pad(x, (padding, padding, padding, padding))
    tops = range(0, padded.size(2) - r + 1, stride)
    lefts = range(0, padded.size(3) - s + 1, stride)
    return torch.stack([padded[:, :, t : t + r, l : l + s].flatten(1) for t in tops for l in lefts], dim=2)


def col2im(columns, shape, r, s, stride=1, padding=0):
    N, C, H, W = shape
    image = torch.zeros((N, C, H + 2 * padding, W + 2 * padding), dtype=columns.dtype)
    column = iter(range(columns.shape[2]))
    for top in range(0, image.shape[2] - r + 1, stride):
        for left in range(0, image.shape[3] - s + 1, stride):
            image[:, :, top : top + r, left : left + s] += columns[:, :, next(column)].reshape(N, C, r, s)
    return image[:, :, padding : H + padding, padding : W + padding].contiguous()


# %% im2col: a strided view, and slices that begin in the corner
def im2col(x, r, s, stride=1, padding=0):
    N, C, H, W = x.shape
    P, Q = (H + 2 * padding - r) // stride + 1, (W + 2 * padding - s) // stride + 1
    x = functional.pad(x, (padding,) * 4).contiguous()
    n, c, h, v = x.stride()
    tiles = torch.as_strided(x, (N, C, r, s, P, Q), (n, c, h, v, h * stride, v * stride))
    return tiles.reshape(N, C * r * s, P * Q)


def col2im(columns, shape, r, s, stride=1, padding=0):
    N, C, H, W = shape
    P, Q = (H + 2 * padding - r) // stride + 1, (W + 2 * padding - s) // stride + 1
    image = columns.new_zeros(N, C, H + 2 * padding, W + 2 * padding)
    parts = columns.reshape(N, C, r, s, P, Q)
    for i in range(r):
        for j in range(s):
            image[:, :, i::stride, j::stride][:, :, :P, :Q].add_(parts[:, :, i, j])
    return image.narrow(2, padding, H).narrow(3, padding, W)


# %% conv_im2col: the stack of columns becomes one wide matrix
def conv_im2col(x, w, stride=1, padding=0, matmul=torch.matmul):
    N, K = len(x), len(w)
    R, S = w.shape[-2:]
    Q = (x.shape[3] + 2 * padding - S) // stride + 1
    columns = im2col(x, R, S, stride, padding)
    wide = columns.transpose(0, 1).reshape(columns.shape[1], -1)
    return matmul(w.reshape(K, -1), wide).view(K, N, -1, Q).transpose(0, 1)


# %% conv_im2col: windows as rows, filters on the right
def conv_im2col(x, w, stride=1, padding=0, matmul=torch.matmul):
    N, K = x.shape[0], w.shape[0]
    P = (x.shape[2] + 2 * padding - w.shape[2]) // stride + 1
    rows = im2col(x, w.shape[2], w.shape[3], stride, padding).mT
    return matmul(rows, w.flatten(1).T).mT.reshape(N, K, P, -1)


# %% conv_im2col: filters repeated for each image
def conv_im2col(x, w, stride=1, padding=0, matmul=torch.matmul):
    columns = im2col(x, *w.shape[2:], stride=stride, padding=padding)
    filters = w.reshape(1, len(w), -1).expand(len(x), -1, -1)
    y = matmul(filters, columns)
    return y.unflatten(2, ((x.shape[2] + 2 * padding - w.shape[2]) // stride + 1, -1))


# %% toeplitz: the window on an empty image, unrolled
def toeplitz(w, h, wd):
    R, S = w.shape
    rows = []
    for p in range(h - R + 1):
        for q in range(wd - S + 1):
            image = torch.zeros(h, wd, dtype=w.dtype)
            image[p : p + R, q : q + S] = w
            rows.append(image.ravel())
    return torch.stack(rows)


# %% toeplitz: functional.pad
def toeplitz(w, h, wd):
    down, right = h - w.shape[0], wd - w.shape[1]
    rows = [functional.pad(w, (q, right - q, p, down - p)).flatten() for p in range(down + 1) for q in range(right + 1)]
    return torch.stack(rows)


# %% toeplitz: blocks of Toeplitz matrices
def band(row, n):
    return torch.stack(
        [torch.cat([row.new_zeros(q), row, row.new_zeros(n - len(row) - q)]) for q in range(n - len(row) + 1)]
    )


def toeplitz(w, h, wd):
    bands = [band(row, wd) for row in w]
    empty = torch.zeros_like(bands[0])
    P = h - len(w) + 1
    return torch.cat(
        [torch.cat([bands[c - p] if 0 <= c - p < len(w) else empty for c in range(h)], 1) for p in range(P)]
    )


# %% toeplitz: number by number
def toeplitz(w, h, wd):
    R, S = w.shape
    P, Q = h - R + 1, wd - S + 1
    T = torch.zeros((P * Q, h * wd), dtype=w.dtype)
    for row in range(P * Q):
        p, q = divmod(row, Q)
        for i in range(R):
            for j in range(S):
                T[row, (p + i) * wd + (q + j)] = w[i, j]
    return T


# %% conv_fft: the full complex transform
def conv_fft(x, w, padding=0):
    x = functional.pad(x, (padding,) * 4)
    H, W = x.shape[-2:]
    R, S = w.shape[-2:]
    X, F = torch.fft.fft2(x), torch.fft.fft2(w, s=(H, W))
    Y = (X[:, None] * F.conj()[None]).sum(2)
    return torch.fft.ifft2(Y).real[:, :, : H - R + 1, : W - S + 1]


# %% conv_fft: the window turned round, and larger transforms
def conv_fft(x, w, padding=0):
    H, W = x.shape[2] + 2 * padding, x.shape[3] + 2 * padding
    R, S = w.shape[2:]
    size = (H + R - 1, W + S - 1)
    X = torch.fft.rfft2(functional.pad(x, [padding] * 4), s=size)
    F = torch.fft.rfft2(w.flip(2, 3), s=size)
    y = torch.fft.irfft2(torch.einsum("ncij,kcij->nkij", X, F), s=size)
    return y[:, :, R - 1 : H, S - 1 : W]


# %% conv_fft: image by image, filter by filter, channels added in space
def conv_fft(x, w, padding=0):
    x = functional.pad(x, (padding,) * 4)
    s = tuple(x.shape[2:])
    P, Q = s[0] - w.shape[2] + 1, s[1] - w.shape[3] + 1
    y = torch.zeros(len(x), len(w), P, Q, dtype=x.dtype)
    for n, image in enumerate(x):
        spectrum = torch.fft.rfft2(image)
        for k, filters in enumerate(w):
            product = spectrum * torch.conj(torch.fft.rfft2(filters, s=s))
            y[n, k] = torch.fft.irfft2(product, s=s).sum(0)[:P, :Q]
    return y


# %% conv_fft: overlap-save, in blocks of 3 x 3 outputs
def conv_fft(x, w, padding=0):
    x = functional.pad(x, (padding,) * 4)
    R, S = w.shape[2:]
    P, Q = x.shape[2] - R + 1, x.shape[3] - S + 1
    size = (R + 2, S + 2)
    F = torch.fft.rfft2(w, s=size).conj()
    y = x.new_zeros(len(x), len(w), P, Q)
    for p in range(0, P, 3):
        for q in range(0, Q, 3):
            X = torch.fft.rfft2(x[:, :, p : p + R + 2, q : q + S + 2], s=size)
            block = torch.fft.irfft2(torch.einsum("nchw,kchw->nkhw", X, F), s=size)
            y[:, :, p : p + 3, q : q + 3] = block[:, :, : min(3, P - p), : min(3, Q - q)]
    return y


# %% winograd_matrices: columns as functions of the point
def winograd_matrices(m, r):
    points = POINTS[: m + r - 2]
    last = lambda n: [Fraction(0)] * (n - 1) + [Fraction(1)]
    B_T, G = [], []
    for t in points:
        others = [p for p in points if p != t]
        B_T.append(polynomial(others) + [Fraction(0)])
        scale = Fraction(1)
        for p in others:
            scale *= t - p
        G.append([t**k / scale for k in range(r)])
    A = [[t**i for i in range(m)] for t in points] + [last(m)]
    return [list(row) for row in zip(*A)], G + [last(r)], B_T + [polynomial(points)]


# %% winograd_matrices: the scale moved from G to B
def winograd_matrices(m, r):
    points = POINTS[: m + r - 2]
    a = m + r - 1
    A_T = [[Fraction(0)] * a for _ in range(m)]
    G = [[Fraction(0)] * r for _ in range(a)]
    B_T = [[Fraction(0)] * a for _ in range(a)]
    for i, t in enumerate(points):
        others = points[:i] + points[i + 1 :]
        f = math.prod((t - other for other in others), start=Fraction(1))
        for k in range(m):
            A_T[k][i] = t**k
        for k in range(r):
            G[i][k] = t**k
        for k, c in enumerate(polynomial(others)):
            B_T[i][k] = c / f
    A_T[m - 1][a - 1] = G[a - 1][r - 1] = Fraction(1)
    B_T[a - 1] = polynomial(points)
    return A_T, G, B_T


# %% conv_winograd: one product for each place of the tile
def conv_winograd(x, w, m=2, matmul=torch.matmul):
    (N, C, H, W), (K, _, r, _) = x.shape, w.shape
    P, Q, a = H - r + 1, W - r + 1, m + r - 1
    A_T, G, B_T = [x.new_tensor([[float(v) for v in row] for row in rows]) for rows in winograd_matrices(m, r)]
    down, right = math.ceil(P / m), math.ceil(Q / m)
    x = functional.pad(x, (0, right * m + r - 1 - W, 0, down * m + r - 1 - H))
    tiles = torch.stack([x[:, :, i * m : i * m + a, j * m : j * m + a] for i in range(down) for j in range(right)])
    U = torch.einsum("ai,kcij,bj->abkc", G, w, G)
    V = torch.einsum("ai,tncij,bj->abctn", B_T, tiles, B_T)
    M = torch.stack([matmul(U[i, j], V[i, j].flatten(1)) for i in range(a) for j in range(a)])
    M = M.view(a, a, K, down, right, N)
    Y = torch.einsum("xa,abkpqn,yb->nkpxqy", A_T, M, A_T)
    return Y.reshape(N, K, down * m, right * m)[:, :, :P, :Q]


# %% conv_winograd: tile by tile, an output that is filled
import numpy as np


def conv_winograd(x, w, m=2, matmul=torch.matmul):
    as_tensor = lambda rows: torch.tensor(np.array(rows, dtype=float), dtype=x.dtype)
    (N, C, H, W), (K, _, r, _) = x.shape, w.shape
    a, P, Q = m + r - 1, H - r + 1, W - r + 1
    A_T, G, B_T = map(as_tensor, winograd_matrices(m, r))
    U = torch.matmul(torch.matmul(G, w), G.T).reshape(K, C, a * a).permute(2, 0, 1)
    rows, columns = (P + m - 1) // m, (Q + m - 1) // m
    big = x.new_zeros(N, C, rows * m + r - 1, columns * m + r - 1)
    big[..., :H, :W] = x
    V = x.new_empty(a * a, C, N, rows, columns)
    for i in range(rows):
        for j in range(columns):
            d = big[:, :, i * m : i * m + a, j * m : j * m + a]
            V[..., i, j] = (B_T @ d @ B_T.T).flatten(2).permute(2, 1, 0)
    M = matmul(U, V.flatten(2)).view(a, a, K, N, rows, columns)
    y = x.new_empty(N, K, rows * m, columns * m)
    for i in range(rows):
        for j in range(columns):
            tile = M[..., i, j].permute(3, 2, 0, 1)
            y[:, :, i * m : (i + 1) * m, j * m : (j + 1) * m] = A_T @ tile @ A_T.T
    return y[..., :P, :Q]


# %% conv_cost: a dictionary of functions
def conv_cost(algorithm, problem):
    p = problem
    outputs, weights = p.N * p.K * p.P * p.Q, p.C * p.R * p.S
    arrays = p.N * p.C * p.H * p.W + p.K * weights + outputs

    def winograd(m):
        tiles = p.N * math.ceil(p.P / m) * math.ceil(p.Q / m)
        return (m + 2) ** 2 * tiles * p.K * p.C, 4 * (m + 2) ** 2 * (p.K * p.C + tiles * p.C + tiles * p.K)

    def fourier():
        rows = 2 ** math.ceil(math.log2(p.H + 2 * p.padding))
        columns = 2 ** math.ceil(math.log2(p.W + 2 * p.padding))
        frequencies = rows * (columns // 2 + 1)
        return 4 * frequencies * p.N * p.K * p.C, 8 * frequencies * (p.N * p.C + p.K * p.C + p.N * p.K)

    ways = {
        "direct": lambda: (outputs * weights, 0),
        "im2col": lambda: (outputs * weights, 4 * p.N * weights * p.P * p.Q),
        "toeplitz": lambda: (outputs * weights, 20 * p.K * p.P * p.Q * weights),
        "winograd_2x2": lambda: winograd(2),
        "winograd_4x4": lambda: winograd(4),
        "fft": fourier,
    }
    multiplications, between = ways[algorithm]()
    return multiplications, 4 * arrays + 2 * between


# %% conv_cost: match, early returns, a list for a pair
def conv_cost(algorithm, problem):
    N, C, H, W = problem.N, problem.C, problem.H, problem.W
    K, R, S, P, Q = problem.K, problem.R, problem.S, problem.P, problem.Q
    least = 4 * (N * C * H * W + K * C * R * S + N * K * P * Q)
    direct = N * K * P * Q * C * R * S
    match algorithm:
        case "direct":
            return [direct, least]
        case "im2col":
            return [direct, least + 2 * 4 * N * C * R * S * P * Q]
        case "toeplitz":
            non_zeros = K * P * Q * C * R * S
            return [direct, least + 2 * non_zeros * (4 + 8 + 8)]
        case "fft":
            a = b = 1
            while a < H + 2 * problem.padding:
                a *= 2
            while b < W + 2 * problem.padding:
                b *= 2
            f = a * (b // 2 + 1)
            return [4 * f * N * K * C, least + 2 * 8 * f * (N * C + K * C + N * K)]
    m = {"winograd_2x2": 2, "winograd_4x4": 4}[algorithm]
    tiles = N * ((P + m - 1) // m) * ((Q + m - 1) // m)
    places = (m + 2) * (m + 2)
    return [places * tiles * K * C, least + 2 * 4 * places * (K * C + tiles * (C + K))]


# %% conv_kernel: filters first, sums of products without tl.dot
@triton.jit
def conv_kernel(x, w, y, N, C, H, W, K, R, S, P, Q, stride, padding, BLOCK: tl.constexpr):
    blocks = tl.cdiv(K, BLOCK)
    i = tl.program_id(0)
    pixel = (i // blocks) * BLOCK + tl.arange(0, BLOCK)
    k = (i % blocks) * BLOCK + tl.arange(0, BLOCK)
    n = pixel // (P * Q)
    p = (pixel // Q) % P
    q = pixel % Q
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for c in range(0, C):
        for r in range(0, R):
            for s in range(0, S):
                h = p * stride + r - padding
                v = q * stride + s - padding
                inside = (pixel < N * P * Q) & (h >= 0) & (h < H) & (v >= 0) & (v < W)
                seen = tl.load(x + ((n * C + c) * H + h) * W + v, mask=inside, other=0.0)
                weights = tl.load(w + ((k * C + c) * R + r) * S + s, mask=k < K, other=0.0)
                total += seen[:, None] * weights[None, :]
    mask = (pixel[:, None] < N * P * Q) & (k[None, :] < K)
    tl.store(y + ((n[:, None] * K + k[None, :]) * P + p[:, None]) * Q + q[:, None], total, mask=mask)


# %% unmask_conv: one input that has it all
def unmask_conv():
    return [(5, 7, 2, 1, 2, 1)]


# %% unmask_conv: a list of lists, from a dict
def unmask_conv():
    plain = dict(H=6, W=6, R=2, S=2, stride=1, padding=0)
    changes = [dict(), dict(W=9), dict(stride=3), dict(padding=2)]
    return [list({**plain, **change}.values()) for change in changes]
