"""Holds device memory in a cache of its own, as PyTorch does, while another process of the job asks for it.

usage: nudge_torch.py HELD_MIB WANTED_MIB [capturing]     prints code=, the driver's answer to the other process

There is no PyTorch here: a module `torch` stands in for it, over the driver by ctypes. With `capturing` it says that
its stream is in a capture.
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
    context = ctypes.c_void_p()
    must(driver.cuInit(0))
    must(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
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


def stand_in(capturing):
    torch = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(
        is_initialized=lambda: True, is_current_stream_capturing=lambda: capturing, empty_cache=empty_cache)
    sys.modules["torch"] = torch


def main(held, wanted, capturing):
    start()
    if held == 0:
        return allocate(wanted)
    must(allocate(held))
    stand_in(capturing)
    other = subprocess.Popen([sys.executable, __file__, "0", str(wanted)])
    while other.poll() is None:
        time.sleep(0.001)
    print(f"code={other.returncode}\nblocks={len(blocks)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), "capturing" in sys.argv))
