"""Starts workers as launchers written in Python do, for tests/integration/launch.c. Knows nothing of gpucap.

usage: launch_workers.py WAY WORKERS      WAY: sessions, spawn or forkserver

sessions: subprocesses in sessions of their own, with a copied environment, as torchrun starts its ranks. The others
are multiprocessing's. A worker makes a context; when all have one, each takes blocks until it is refused, and keeps
them until all are through. Prints `blocks=` with what all hold together, and `each=` with what each holds.
"""
import ctypes
import multiprocessing
import os
import subprocess
import sys

BLOCK = 16 << 20


class Card:
    """The driver by its plain names."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self.must(self.driver.cuInit(0))
        self.must(self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
        self.must(self.driver.cuCtxSetCurrent(context))

    @staticmethod
    def must(code):
        if code:
            raise RuntimeError(f"the driver answered {code}")

    def fill(self):
        blocks, address = 0, ctypes.c_uint64()
        while self.driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(BLOCK)) == 0:
            blocks += 1
        return blocks


def work(send, receive):
    card = Card()
    send("ready")
    receive()
    send(str(card.fill()))
    receive()


def work_with(pipe):
    work(pipe.send, pipe.recv)


def start_process(way):
    context = multiprocessing.get_context(way)
    ours, theirs = context.Pipe()
    process = context.Process(target=work_with, args=(theirs,))
    process.start()
    theirs.close()
    return process.join, ours.send, ours.recv


def start_session():
    process = subprocess.Popen([sys.executable, __file__], env=dict(os.environ), start_new_session=True, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def send(word):
        process.stdin.write(word + "\n")
        process.stdin.flush()

    return process.wait, send, lambda: process.stdout.readline().strip()


def main(way, count):
    workers = [start_session() if way == "sessions" else start_process(way) for _ in range(count)]
    for _, send, receive in workers:
        assert receive() == "ready"
    for _, send, _ in workers:
        send("go")
    held = [int(receive()) for _, _, receive in workers]
    for _, send, _ in workers:
        send("end")
    for join, _, _ in workers:
        join()
    print(f"blocks={sum(held)}")
    print("each=" + ",".join(map(str, held)))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        main(sys.argv[1], int(sys.argv[2]))
    else:
        work(lambda word: print(word, flush=True), sys.stdin.readline)
