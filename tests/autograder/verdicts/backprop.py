"""Answers to exercises of lab `backprop` whose verdict was wrong once: see `test_verdicts`."""


# %% output_error: in place -> error_of_a_batch
def output_error(a, y, z):
    a.sub_(y)
    s = torch.sigmoid(z)
    return a * s * (1 - s)


# %% backpropagate_error: in place delta -> a_batch_one_layer_back
def backpropagate_error(delta, w_next, z):
    s = torch.sigmoid(z)
    out = (delta @ w_next) * s * (1 - s)
    delta.zero_()
    return out


# %% softmax_cross_entropy: changes logits -> rows_sum_to_zero
def softmax_cross_entropy(logits, labels):
    logits -= logits.amax(1, keepdim=True)
    logp = logits - logits.exp().sum(1, keepdim=True).log()
    N = len(labels)
    d = logp.exp()
    d[torch.arange(N), labels] -= 1
    return -logp[torch.arange(N), labels].mean(), d / N


# %% train: chunk -> the_short_last_batch
def train(X, labels, weights, biases, lr, batch_size, epochs, generator):
    W, b = list(weights), list(biases)
    for _ in range(epochs):
        for idx in torch.randperm(X.shape[0], generator=generator).chunk(-(-len(X) // batch_size)):
            zs, acts = feedforward(W, b, X[idx])
            _, d = softmax_cross_entropy(zs[-1], labels[idx])
            new_W, new_b = list(W), list(b)
            for k in range(len(W) - 1, -1, -1):
                new_W[k] = W[k] - lr * (d.T @ acts[k])
                new_b[k] = b[k] - lr * d.sum(0)
                if k > 0:
                    d = backpropagate_error(d, W[k], zs[k - 1])
            W, b = new_W, new_b
    return W, b


# %% train: shuffles blocks -> a_new_order_each_epoch
def train(X, labels, weights, biases, lr, batch_size, epochs, generator):
    W, b = list(weights), list(biases)
    for _ in range(epochs):
        parts = torch.arange(len(X)).split(batch_size)
        for i in torch.randperm(len(parts), generator=generator).tolist():
            idx = parts[i]
            zs, acts = feedforward(W, b, X[idx])
            _, d = softmax_cross_entropy(zs[-1], labels[idx])
            new_W, new_b = list(W), list(b)
            for k in range(len(W) - 1, -1, -1):
                new_W[k] = W[k] - lr * (d.T @ acts[k])
                new_b[k] = b[k] - lr * d.sum(0)
                if k > 0:
                    d = backpropagate_error(d, W[k], zs[k - 1])
            W, b = new_W, new_b
    return W, b
