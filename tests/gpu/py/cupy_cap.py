"""An ordinary CuPy program: computes, takes memory until there is none, goes on. Knows nothing of gpucap.

Prints key=value lines. An argument, if given, is the number of bytes that the card is expected to have.
"""
import sys

import cupy


def right(size):
    a = cupy.arange(size, dtype=cupy.float64)
    return float(a.sum()) == size * (size - 1) / 2


def main():
    free, total = cupy.cuda.runtime.memGetInfo()
    print(f"total={total}")
    print(f"free_at_start={free}")
    print(f"properties_total={cupy.cuda.runtime.getDeviceProperties(0)['totalGlobalMem']}")
    ok = right(1000) and cupy.cuda.runtime.getDeviceProperties(0)["totalGlobalMem"] == total
    kept, refused, block = [], 0, total // 16
    while block >= 1 << 20:
        try:
            kept.append(cupy.full(block, 7, dtype=cupy.uint8))
        except cupy.cuda.memory.OutOfMemoryError:
            refused += 1
            block //= 2
    held = sum(a.nbytes for a in kept)
    print(f"held_bytes={held}")
    print(f"refused={refused}")
    ok = ok and all(int(a[-1]) == 7 for a in kept)
    kept.clear()
    cupy.get_default_memory_pool().free_all_blocks()
    ok = ok and right(1000000) and refused > 0 and held <= total
    if len(sys.argv) > 1:
        ok = ok and total == int(sys.argv[1])
    print(f"held={'yes' if ok else 'no'}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
