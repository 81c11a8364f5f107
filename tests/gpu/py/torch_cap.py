"""An ordinary PyTorch program: computes, takes memory until there is none, goes on. Knows nothing of gpucap.

Prints key=value lines. An argument, if given, is the number of bytes that the card is expected to have.
"""
import sys

import torch


def right(size):
    """A product whose result is known: ones times ones is the inner size everywhere."""
    a = torch.ones(size, size, device="cuda")
    return bool(((a @ a) == size).all().item())


def main():
    free, total = torch.cuda.mem_get_info()
    properties = torch.cuda.get_device_properties(0)
    print(f"total={total}")
    print(f"properties_total={properties.total_memory}")
    print(f"free_at_start={free}")
    ok = right(512)
    kept, refused, block = [], 0, total // 16
    while block >= 1 << 20:
        try:
            kept.append(torch.empty(block, dtype=torch.uint8, device="cuda"))
            kept[-1].fill_(7)
        except torch.cuda.OutOfMemoryError:
            refused += 1
            block //= 2
    held = sum(t.numel() for t in kept)
    intact = all(int(t[-1].item()) == 7 for t in kept)
    print(f"held_bytes={held}")
    print(f"refused={refused}")
    kept.clear()
    torch.cuda.empty_cache()
    again = right(1024)
    linear = torch.nn.Linear(256, 256).cuda()
    loss = linear(torch.randn(64, 256, device="cuda")).square().mean()
    loss.backward()
    finite = bool(torch.isfinite(linear.weight.grad).all().item())
    ok = ok and intact and again and finite and refused > 0 and held <= total and properties.total_memory == total
    if len(sys.argv) > 1:
        ok = ok and total == int(sys.argv[1])
    print(f"held={'yes' if ok else 'no'}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
