"""Runs programs natively and under the library, and compares what they answer.

usage: same_answers.py LIBRARY [--cap=SIZE] [--jobs=N] [--seconds=N] [--part-seconds=N] PROGRAM...

PROGRAM is a Python script that knows nothing of gpucap: with --list it names its parts, with a part's name it prints lines
'KEY ANSWER'. Each part runs natively twice, under the library, and under it with free=deferred and without PyTorch's
cache. An answer that is not the same in both native runs is not compared; a part that has failed natively is, as its lines
up to there and its exit status must be the same.

Prints a line for each answer that differs, for each part that there was no time for, and at last what was compared. Exit
status: 1 if an answer differs or nothing was compared.
"""
import argparse
import concurrent.futures
import os
import subprocess
import sys
import time

PORTS = 29100  # each run has its own


class Way:
    def __init__(self, name, **variables):
        self.name, self.variables = name, variables


def parts_of(program):
    listed = subprocess.run([sys.executable, program, "--list"], stdout=subprocess.PIPE, text=True, check=True)
    return [(program, part) for part in listed.stdout.split()]


def answers(program, part, way, port, until, limit):
    """Returns {key: answer}, or None if there was no time. A run that takes longer than `limit` has a status of its own."""
    left = min(limit, until - time.monotonic())
    if left <= 0:
        return None
    # Without a fixed seed the order of a set, and with it of PyTorch's samples, changes from process to process.
    environment = dict(os.environ, PYTHONHASHSEED="0", MASTER_PORT=str(port), **way.variables)
    try:
        run = subprocess.run([sys.executable, program, part], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env=environment, timeout=left)
    except subprocess.TimeoutExpired:
        return {f"{part}.status": "did not end"} if left == limit else None
    found = {f"{part}.status": str(run.returncode)}
    for line in run.stdout.splitlines():
        key, _, answer = line.partition(" ")
        found[key] = answer
    if run.returncode:
        sys.stderr.write(f"--- {part}, {way.name}\n{run.stderr[-1500:]}\n")
    return found


class Comparison:
    def __init__(self):
        self.same, self.different, self.vary, self.late = 0, 0, 0, 0

    def add(self, part, native, again, others):
        """`others`: {way: answers}"""
        if None in (native, again, *others.values()):
            self.late += 1
            print(f"no time for {part}")
            return
        for way, found in others.items():
            for key in sorted(native.keys() | found.keys() | again.keys()):
                if native.get(key) != again.get(key):
                    self.vary += 1
                elif native.get(key) == found.get(key):
                    self.same += 1
                else:
                    self.different += 1
                    print(f"DIFFERENT {key}: natively {native.get(key)}, {way} {found.get(key)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--cap", default="20G")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--part-seconds", type=float, default=120)
    options = parser.parse_args()
    wrapped = {"LD_PRELOAD": options.library, "GPUCAP_MAX": options.cap}
    ways = [Way("native"), Way("again"), Way("strict", **wrapped),
            Way("deferred", **wrapped, GPUCAP_FREE="deferred", PYTORCH_NO_CUDA_MEMORY_CACHING="1")]
    until = time.monotonic() + options.seconds
    parts = [part for program in options.programs for part in parts_of(program)]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        runs = [[pool.submit(answers, *part, way, PORTS + number * len(ways) + i, until,
                              options.part_seconds) for i, way in enumerate(ways)]
                for number, part in enumerate(parts)]
    total = Comparison()
    for (program, part), (native, again, *others) in zip(parts, runs):
        total.add(part, native.result(), again.result(),
                   {way.name: run.result() for way, run in zip(ways[2:], others)})
    print(f"parts={len(parts)} same={total.same} different={total.different} vary={total.vary} late={total.late}")
    return 1 if total.different or not total.same else 0


if __name__ == "__main__":
    sys.exit(main())
