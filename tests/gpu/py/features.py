"""What the programs of features have in common: a function is a feature, named after it, and yields answers."""
import hashlib
import os
import sys
import warnings

FEATURES = {}


def feature(function):
    FEATURES[function.__name__] = function
    return function


def bits(tensor):
    """A short hash of a PyTorch tensor's values."""
    return hashlib.sha1(tensor.detach().float().cpu().contiguous().numpy().tobytes()).hexdigest()[:12]


def main():
    warnings.filterwarnings("ignore")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if sys.argv[1:] == ["--list"]:
        print("\n".join(FEATURES))
        return
    for number, answer in enumerate(FEATURES[sys.argv[1]]()):
        print(f"{sys.argv[1]}.{number} {answer}", flush=True)
