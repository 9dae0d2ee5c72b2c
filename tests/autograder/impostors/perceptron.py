"""Lab 03 answered by others."""

LIBRARY = {
    "predict": "from hpcdl.nn.perceptron import predict",
    "update": """
from hpcdl.nn.perceptron import train

def update(w, x, y, lr):
    return train(x[None], x.new_tensor([y]), lr, 1, w0=w).w
""",
    "fit": """
from hpcdl.nn import perceptron

def fit(X, y, lr, max_epochs):
    found = perceptron.train(X, y, lr, max_epochs)
    return found.w, found.mistakes
""",
    "margin": "from hpcdl.nn.perceptron import margin",
    "novikoff_bound": """
import functools, hpcdl.nn.perceptron
novikoff_bound = functools.partial(hpcdl.nn.perceptron.novikoff_bound)
""",
    "mlp_xor": """
import hpcdl.nn.perceptron as library

def mlp_xor(X):
    H = library.predict(X.new_tensor([1.0, 1.0, 1.0]), X)
    return H, H
""",
}
NOT_IN_LIBRARY = {
    "unmask_fit": "what to ask eight programs is no function of anybody's",
    "lift": "hpcdl appends no products",
}
FRAMEWORKS: dict[str, str] = {}
NOT_IN_FRAMEWORKS = dict.fromkeys(
    ("predict", "update", "fit", "margin", "novikoff_bound", "lift", "mlp_xor"),
    "torch has no perceptron; its own functions are what an answer is made of",
)
NOT_IN_FRAMEWORKS["unmask_fit"] = "what to ask eight programs is no function of anybody's"
