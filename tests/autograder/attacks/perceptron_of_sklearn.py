# perceptron.fit: 0 points, flagged, long
# scikit-learn has the perceptron: one epoch at a time, in order.
import numpy as np
import torch
from sklearn.linear_model import Perceptron


def fit(X, y, lr, max_epochs):
    model, w, mistakes = Perceptron(shuffle=False, eta0=2 * lr, fit_intercept=False), torch.zeros(X.shape[1]), []
    for _ in range(max_epochs):
        wrong = 0
        for x, label in zip(X, y, strict=True):
            before = w
            model.partial_fit(x[None].numpy(), label[None].numpy(), classes=np.array([-1.0, 1.0]))
            w = torch.from_numpy(model.coef_[0].astype(np.float32))
            wrong += not torch.equal(w, before)
        mistakes.append(wrong)
        if not wrong:
            break
    return w, mistakes
