"""Features of JAX, each in a process of its own. Knows nothing of gpucap.

usage: features_jax.py --list | FEATURE
"""
import os

from features import feature, main


def import_jax(**variables):
    os.environ.update({"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **variables})
    import jax

    return jax, jax.numpy


def train(**variables):
    """A small training with donated parameters and batches of three sizes."""
    jax, jnp = import_jax(**variables)
    key = jax.random.key(0)
    weights = [jax.random.normal(jax.random.fold_in(key, i), (512, 512)) * 0.04 for i in range(4)]

    def loss(weights, x):
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return (x ** 2).mean()

    def descend(weights, x):
        return jax.tree.map(lambda weight, slope: weight - 0.1 * slope, weights, jax.grad(loss)(weights, x))

    step = jax.jit(descend, donate_argnums=0)
    for i in range(20):
        weights = step(weights, jax.random.normal(jax.random.fold_in(key, 99 + i), (32 + 32 * (i % 3), 512)))
    yield f"{float(loss(weights, jnp.ones((8, 512)))):.4f}"


@feature
def grows():
    return train()


@feature
def no_cache():
    return train(XLA_PYTHON_CLIENT_ALLOCATOR="platform")


@feature
def cuda_async():
    return train(XLA_PYTHON_CLIENT_ALLOCATOR="cuda_async")


@feature
def vmm():
    return train(XLA_PYTHON_CLIENT_ALLOCATOR="vmm")


@feature
def preallocates():
    return train(XLA_PYTHON_CLIENT_PREALLOCATE="true", XLA_PYTHON_CLIENT_MEM_FRACTION=".10")


@feature
def operations():
    jax, jnp = import_jax()
    x = jnp.arange(1 << 20, dtype=jnp.float32)
    yield float(jnp.fft.fft(x[:4096]).real.sum())
    yield float(jnp.linalg.eigvalsh(jnp.eye(64) * 3).sum())
    yield float(jnp.sort(-x)[0])
    yield float(jax.lax.scan(lambda total, value: (total + value, total), 0.0, x[:1000])[0])
    kernel, picture = jnp.ones((8, 4, 3, 3)), jnp.ones((2, 4, 32, 32))
    slope = jax.grad(lambda w: jax.lax.conv_general_dilated(picture, w, (1, 1), "SAME").sum())
    yield float(jax.jit(slope)(kernel).sum())


@feature
def host_memory():
    jax, jnp = import_jax()
    x = jnp.arange(1 << 20, dtype=jnp.float32)
    host = jax.sharding.SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host")
    yield jax.device_put(x, host).sharding.memory_kind


@feature
def shard_map():
    jax, jnp = import_jax()
    mesh = jax.sharding.Mesh(jax.devices(), "i")
    add = jax.shard_map(lambda part: jax.lax.psum(part, "i"), mesh=mesh, in_specs=jax.P("i"), out_specs=jax.P())
    yield float(add(jnp.ones(1 << 20)).sum())


@feature
def refused():
    jax, jnp = import_jax()
    x = jnp.ones(1 << 20)
    try:
        jnp.zeros((400, 1 << 30), dtype=jnp.uint8).block_until_ready()
        yield "granted"
    except Exception as error:  # of a type that JAX does not document
        yield "RESOURCE_EXHAUSTED" in str(error)
    yield float(x.sum())


@feature
def pallas():
    jax, jnp = import_jax()
    from jax.experimental import pallas

    def double(x, out):
        out[...] = x[...] * 2

    x = jnp.ones((128, 128))
    yield float(pallas.pallas_call(double, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x).sum())


@feature
def sampling():
    jax, jnp = import_jax()
    import numpyro
    from numpyro.infer import MCMC, NUTS

    def model(seen):
        mean = numpyro.sample("mean", numpyro.distributions.Normal(0, 1))
        numpyro.sample("seen", numpyro.distributions.Normal(mean, 1), obs=seen)

    chain = MCMC(NUTS(model), num_warmup=50, num_samples=50, progress_bar=False)
    chain.run(jax.random.key(0), jnp.ones(50))
    yield f"{float(chain.get_samples()['mean'].mean()):.2f}"


@feature
def shared_with_torch_and_cupy():
    _, jnp = import_jax()
    import cupy
    import torch

    doubled = cupy.from_dlpack(torch.arange(1000.0, device="cuda")) * 2
    again = torch.from_dlpack(doubled)
    yield float(jnp.from_dlpack(again).sum())
    yield again.sum().item()


if __name__ == "__main__":
    main()
