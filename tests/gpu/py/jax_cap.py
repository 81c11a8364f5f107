"""An ordinary JAX program with its default preallocation: computes, asks for too much, goes on. Knows nothing of gpucap.

Prints key=value lines. An argument, if given, is the number of bytes that the card is expected to have: JAX then limits
itself to 75 % of them.
"""
import sys

import jax
import jax.numpy as jnp


def right(size):
    a = jnp.ones((size, size), dtype=jnp.float32)
    return bool((a @ a == size).all())


def main():
    device = jax.devices("gpu")[0]
    ok = right(512)
    limit = device.memory_stats()["bytes_limit"]
    print(f"bytes_limit={limit}")
    kept, refused, block = [], 0, limit // 16
    while block >= limit // 32: # each refusal takes JAX ten seconds of hope
        try:
            kept.append(jnp.full((block,), 7, dtype=jnp.uint8).block_until_ready())
        except jax.errors.JaxRuntimeError as error:
            ok = ok and "RESOURCE_EXHAUSTED" in str(error)
            refused += 1
            block //= 2
    held = sum(a.nbytes for a in kept)
    print(f"held_bytes={held}")
    print(f"refused={refused}")
    ok = ok and all(int(a[-1]) == 7 for a in kept)
    kept.clear()
    ok = ok and right(1024) and refused > 0 and held <= limit
    if len(sys.argv) > 1:
        share = limit / int(sys.argv[1])
        print(f"share_of_total={share:.3f}")
        ok = ok and 0.70 <= share <= 0.76
    print(f"held={'yes' if ok else 'no'}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
