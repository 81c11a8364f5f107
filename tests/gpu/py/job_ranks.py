"""The ranks of one training, for tests/gpu/job/job_check.sh: each takes memory of the same card until it is refused.
Knows nothing of gpucap.

usage: torchrun --nproc-per-node=N job_ranks.py

All make a context first, and keep what they got until all are through. Prints, from rank 0, `ranks=`, `mib=` with what
all hold together, and `each=` with what each holds.
"""
import sys

import torch
import torch.distributed as dist

BLOCK = 64 << 20
MOST = 4096  # blocks: without a limit it would take the whole card


def main():
    dist.init_process_group("gloo")
    torch.cuda.set_device(0)
    torch.zeros(1, device="cuda")
    dist.barrier()
    held = []
    try:
        while len(held) < MOST:
            held.append(torch.empty(BLOCK, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError:
        pass
    torch.cuda.synchronize()
    dist.barrier()
    sizes = [None] * dist.get_world_size()
    dist.all_gather_object(sizes, len(held) * BLOCK >> 20)
    if dist.get_rank() == 0:
        print(f"ranks={len(sizes)}\nmib={sum(sizes)}\neach={','.join(map(str, sizes))}", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
