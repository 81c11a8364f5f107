"""PyTorch's own samples of its operators, modules and optimizers on the card, forwards and backwards. Knows nothing of gpucap.

usage: torch_operators.py --list | PART/PARTS

Prints a line for each: what became of it, and a hash of all results. An operator that cannot run here, or whose results
change from run to run, is for the reader of the lines to see.
"""
import hashlib
import sys
import types
import unittest
import warnings

PARTS = 4
SAMPLES = 8  # of each operator

with_tests = types.ModuleType("expecttest")  # PyTorch's lists import it, for tests that are not run here
with_tests.TestCase = unittest.TestCase
sys.modules.setdefault("expecttest", with_tests)


def tensors_in(value):
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return tensors_in(list(value.values()))
    return [tensor for item in value for tensor in tensors_in(item)] if isinstance(value, (list, tuple)) else []


def add_bits(digest, value):
    import torch

    for tensor in tensors_in(value):
        tensor = tensor.detach()
        if tensor.layout != torch.strided:
            tensor = tensor.values() if tensor.layout == torch.jagged else tensor.to_dense()
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor.resolve_conj())
        digest.update(str(tuple(tensor.shape)).encode())
        digest.update(tensor.resolve_neg().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def slopes(outputs, inputs):
    import torch

    outputs = [tensor.sum() for tensor in tensors_in(outputs) if tensor.requires_grad and tensor.dtype.is_floating_point]
    inputs = [tensor for tensor in tensors_in(inputs) if tensor.requires_grad]
    found = torch.autograd.grad(outputs, inputs, allow_unused=True) if outputs and inputs else []
    return [tensor for tensor in found if tensor is not None]


def operator_bits(operator, dtype, digest):
    import torch

    torch.manual_seed(1)
    backwards = dtype == torch.float32 and operator.supports_autograd
    for number, sample in enumerate(operator.sample_inputs("cuda", dtype, requires_grad=backwards)):
        if number == SAMPLES:
            break
        torch.manual_seed(2)
        result = operator(sample.input, *sample.args, **sample.kwargs)
        add_bits(digest, result)
        add_bits(digest, slopes(result, [sample.input, sample.args, sample.kwargs]) if backwards else [])


def foreach_bits(operator, digest):
    import torch

    torch.manual_seed(5)
    for number, sample in enumerate(operator.sample_inputs("cuda", torch.float32)):
        if number == SAMPLES:
            break
        known = {key: value for key, value in sample.kwargs.items()
                 if key not in ("is_fastpath", "zero_size", "disable_fastpath")}
        add_bits(digest, operator.method_variant(sample.input, *sample.args, **known))


def module_bits(module, digest):
    import torch

    for training in (True, False):
        for sample in module.module_inputs_func(module, device="cuda", dtype=torch.float32, requires_grad=True,
                                                training=training):
            torch.manual_seed(3)
            built = module.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs).cuda()
            built.train(training)
            given = sample.forward_input
            result = built(*given.args, **given.kwargs) if given else built()
            add_bits(digest, result)
            add_bits(digest, slopes(result, list(built.parameters())))


def optimizer_bits(optimizer, way, digest):
    import torch

    for sample in optimizer.optim_inputs_func(device="cuda"):
        torch.manual_seed(4)
        weights = [torch.nn.Parameter(torch.randn(33, 17, device="cuda")), torch.nn.Parameter(torch.randn(9, device="cuda"))]
        built = optimizer.optim_cls(weights, **{**sample.kwargs, **way})

        def loss():
            built.zero_grad()
            found = sum((weight * weight).sum() for weight in weights)
            found.backward()
            return found

        for _ in range(4):
            loss()
            built.step(loss)
        add_bits(digest, weights)


def all_samples():
    """Yields (name, function that adds what it computes to a digest)."""
    import torch
    from torch.testing._internal import common_methods_invocations as operators
    from torch.testing._internal.common_modules import module_db
    from torch.testing._internal.common_optimizers import optim_db

    for operator in operators.op_db:
        for dtype in (torch.float32, torch.int64):
            if dtype in operator.supported_dtypes("cuda"):
                name = f"{operator.name}.{operator.variant_test_name}.{str(dtype)[6:]}"
                yield name, lambda digest, operator=operator, dtype=dtype: operator_bits(operator, dtype, digest)
    for kind in ("unary", "binary", "pointwise", "reduce", "other"):
        for operator in getattr(operators, f"foreach_{kind}_op_db"):
            yield f"foreach.{operator.name}", lambda digest, operator=operator: foreach_bits(operator, digest)
    for module in module_db:
        yield f"module.{module.name}", lambda digest, module=module: module_bits(module, digest)
    for optimizer in optim_db:
        for way in ("plain", "foreach", "fused", "capturable"):
            chosen = {} if way == "plain" else {way: True}
            yield (f"optimizer.{optimizer.optim_cls.__name__}.{way}",
                   lambda digest, optimizer=optimizer, chosen=chosen: optimizer_bits(optimizer, chosen, digest))


def main():
    if sys.argv[1:] == ["--list"]:
        print("\n".join(f"{part}/{PARTS}" for part in range(PARTS)))
        return
    part, parts = map(int, sys.argv[1].split("/"))
    warnings.filterwarnings("ignore")
    import torch

    torch.use_deterministic_algorithms(True, warn_only=True)
    for number, (name, run) in enumerate(all_samples()):
        if number % parts != part:
            continue
        digest, became = hashlib.sha1(), "ok"
        try:
            run(digest)
        except Exception as error:  # a sample that cannot run here fails in every way in which it is run
            became = type(error).__name__
        print(name, became, digest.hexdigest()[:12], flush=True)


if __name__ == "__main__":
    main()
