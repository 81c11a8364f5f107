#!/usr/bin/env python3
"""What `train --profile=FILE` writes, read with the decoder of export_readers.py by the field numbers that Perfetto
publishes: slices lie within each other, every pass and layer is there, memory is counted by kind, and with replicas on two
cards the all-reduce of a bucket begins before the backward pass has ended.

usage: profile_reader.py BUILD_FOLDER
       profile_reader.py --file FILE     only reads FILE, and prints what its steps come to
"""
import collections
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from export_readers import check, message  # noqa: E402

KINDS = ("parameters", "optimizer", "gradients", "activations", "workspace", "input")
STEPS = 5
GPT = ["--model=gpt", "--layers=2", "--width=16", "--heads=2", "--length=16", "--batch=4", "--quiet", "--alloc=cache"]
Slice = collections.namedtuple("Slice", "name category begin end within")


class Replica:
    def __init__(self, name):
        self.name, self.slices, self.counters = name, collections.defaultdict(list), collections.defaultdict(list)

    def of(self, category, within=None):
        return [s for s in self.slices["compute"] if s.category == category and within in (None, *s.within)]


def read(data):
    """The replicas of a trace, with the slices and counters of their tracks."""
    trace = message(data)
    check(set(trace) == {1}, "a trace has packets only: %s" % set(trace))
    tracks, open_slices, last = {}, collections.defaultdict(list), collections.defaultdict(int)
    for packet in map(message, trace[1]):
        if packet[60]:  # track_descriptor
            descriptor = message(packet[60][0])
            number = descriptor[1][0]
            check(number not in tracks, "a track is described once")
            if descriptor[3]:
                tracks[number] = (None, "process")
                check(message(descriptor[3][0])[6][0].startswith(b"train "), "the process has its title")
                continue
            parent, name = tracks[descriptor[5][0]], descriptor[2][0].decode()
            replica = Replica(name) if parent[1] == "process" else parent[0]
            tracks[number] = (replica, name)
            check(bool(descriptor[8]) == name.startswith("memory: "), "counters are of memory: " + name)
            check(not descriptor[8] or message(descriptor[8][0])[3] == [3], "counters are of bytes")
            continue
        event, time = message(packet[11][0]), packet[8][0]
        replica, name = tracks[event[11][0]]
        stack, kind = open_slices[event[11][0]], event[9][0]
        if kind == 4:
            replica.counters[name].append((time, event[30][0]))
            continue
        check(time >= last[event[11][0]], "the times of a track do not go back")
        last[event[11][0]] = time
        if kind == 1:
            stack.append((event[23][0].decode(), event[22][0].decode(), time))
        else:
            check(kind == 2 and stack, "a slice ends that has begun")
            begun = stack.pop()
            replica.slices[name].append(Slice(*begun, time, tuple(s[0] for s in stack)))
    check(not any(open_slices.values()), "every slice ends")
    return list(dict.fromkeys(replica for replica, _ in tracks.values() if replica))


def train(build, card, arguments, path):
    environment = dict(os.environ, LD_LIBRARY_PATH=os.path.join(build, "sim"), GPUCAP_SIM=card, GPUCAP_SIM_ID="profile-%d" % os.getpid())
    run = subprocess.run([os.path.join(build, "train"), *arguments, "--profile=" + path], env=environment, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, check=False)
    check(run.returncode == 0, run.stderr.decode())
    with open(path, "rb") as file:
        return read(file.read())


def test_steps(replica):
    steps = replica.of("step")
    check([s.name for s in steps] == ["step %d" % n for n in range(4, 4 + STEPS)], "steps: %s" % [s.name for s in steps])
    for step in steps:
        passes = [s.name for s in replica.of("pass", step.name)]
        check(passes == ["input", "forward", "backward", "update"], "passes: %s" % passes)
        forward, backward = ([s.name for s in replica.of("layer", step.name) if pass_name in s.within] for pass_name in ("forward", "backward"))
        check(forward[:3] == ["wte", "h.0.ln_1", "h.0.attn.c_attn"] and forward[-1] == "loss", "layers: %s" % forward)
        check(backward == forward[::-1], "backward in the other order: %s" % backward)
        operations = {s.name for s in replica.of("operation", step.name)}
        check({"gemm", "attention_forward", "attention_backward", "adamw"} <= operations, "operations: %s" % operations)
    for inner in replica.slices["compute"]:
        check(inner.begin <= inner.end, "a slice ends after it has begun")


def test_memory(replica):
    check(set(replica.counters) == {"memory: " + kind for kind in KINDS} | {"memory: held from the device"}, "counters: %s" % set(replica.counters))
    grown = [value for _, value in replica.counters["memory: activations"]]
    check(max(grown) > 4 * min(grown), "activations come and go: %s" % grown[:20])
    check(len({value for _, value in replica.counters["memory: parameters"]}) == 1, "parameters stay")
    check(max(value for _, value in replica.counters["memory: gradients"]) <= 4 * max(value for _, value in replica.counters["memory: parameters"]),
          "a gradient for each parameter")


def test_overlap(replicas):
    check([r.name for r in replicas] == ["replica %d on simgpu" % n for n in range(2)], "replicas: %s" % [r.name for r in replicas])
    early = 0
    for replica in replicas:
        averages, steps = replica.slices["all-reduce"], replica.of("step")
        check(averages and len(averages) % len(steps) == 0, "as many all-reduces in every step")
        check({s.category for s in averages} == {"all-reduce"} and averages[0].name.startswith("bucket 0, "), "buckets: %s" % averages[0].name)
        for step in steps:
            end = max(s.end for s in replica.of("operation", step.name) if "backward" in s.within)
            of_step = [s for s in averages if step.begin <= s.begin <= step.end]
            check(len(of_step) == len(averages) // len(steps), "each step has its all-reduces")
            early += sum(s.begin < end for s in of_step)
            update = min(s.begin for s in replica.of("operation", step.name) if "update" in s.within)
            check(all(s.end <= update for s in of_step), "the update comes after the averages")
    return early


def show(path):
    with open(path, "rb") as file:
        replicas = read(file.read())
    for replica in replicas:
        steps, operations = replica.of("step"), replica.of("operation")
        whole, busy = (sum(s.end - s.begin for s in slices) for slices in (steps, operations))
        check(steps and busy <= whole, "operations take no longer than their steps")
        print("steps=%d operations=%d ms=%.3f busy=%.4f" % (len(steps), len(operations), whole / len(steps) / 1e6, busy / whole))


def main():
    if sys.argv[1] == "--file":
        show(sys.argv[2])
        return 0
    build = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="gpucap-profile-") as folder:
        path = os.path.join(folder, "a.pftrace")
        replicas = train(build, "1x256M", [*GPT, "--steps=10"], path)
        check(len(replicas) == 1, "one replica")
        test_steps(replicas[0])
        test_memory(replicas[0])
        # A busy machine may run the thread of the averages late, but not in every step of every run.
        check(any(test_overlap(train(build, "2x256M", [*GPT, "--steps=10", "--replicas=all", "--bucket=1", "--graph"], path)) for _ in range(5)),
              "no all-reduce begins before the backward pass has ended")
        check(os.listdir(folder) == ["a.pftrace"], "nothing else is left: %s" % os.listdir(folder))
    print("profile_reader: all is as it should be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
