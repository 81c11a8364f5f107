"""Holds device memory in a cache of its own, as PyTorch does, while another process of the job asks for it.

usage: nudge_torch.py HELD_MIB WANTED_MIB [capturing|broken]

Prints code=, the driver's answer to the other process, blocks=, what is left in the cache, and leaked=, references to
functions of torch.cuda that were not given back.

There is no PyTorch here: a module `torch` stands in for it, over the driver by ctypes, on the last card. With
`capturing` it says that its stream is in a capture, with `broken` it cannot say whether it has started.
"""
import ctypes
import subprocess
import sys
import time
import types

MIB = 1 << 20
driver = ctypes.CDLL("libcuda.so.1")
blocks = []


def must(code):
    if code:
        sys.exit(f"the driver says {code}")


def start():
    context, cards = ctypes.c_void_p(), ctypes.c_int()
    must(driver.cuInit(0))
    must(driver.cuDeviceGetCount(ctypes.byref(cards)))
    must(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), cards.value - 1))
    must(driver.cuCtxSetCurrent(context))


def allocate(mib):
    address = ctypes.c_uint64()
    code = driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(mib * MIB))
    if code == 0:
        blocks.append(address)
    return code


def empty_cache():
    while blocks:
        must(driver.cuMemFree_v2(blocks.pop()))


def stand_in(how):
    def is_initialized():
        if how == "broken":
            raise RuntimeError("half imported")
        return True

    torch = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(
        is_initialized=is_initialized, is_current_stream_capturing=lambda: how == "capturing", empty_cache=empty_cache)
    sys.modules["torch"] = torch
    return is_initialized


def main(held, wanted, how=None):
    start()
    if held == 0:
        return allocate(wanted)
    must(allocate(held))
    function = stand_in(how)
    before = sys.getrefcount(function)
    other = subprocess.Popen([sys.executable, __file__, "0", str(wanted)])
    while other.poll() is None:
        time.sleep(0.001)
    print(f"code={other.returncode}\nblocks={len(blocks)}\nleaked={sys.getrefcount(function) - before}")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
