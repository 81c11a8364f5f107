#!/usr/bin/env python3
"""What `gpucap export` writes, read by readers of its own: protobuf by the field numbers that Perfetto publishes (and by
protoc where it is there), pickle by Python, CSV and SVG by Python's libraries; held against a recount of the recording.

usage: export_readers.py BUILD_FOLDER
"""
import collections
import csv
import os
import pickle
import pickletools
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import recount  # noqa: E402

EVENTS = 3000
# The operations that torch/utils/viz/MemoryViz.js knows.
VIEWER_OPCODES = {
    "PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "BINGET", "LONG_BINGET", "BINPUT", "LONG_BINPUT", "EMPTY_DICT", "EMPTY_LIST",
    "EMPTY_TUPLE", "SETITEMS", "SETITEM", "APPENDS", "APPEND", "LIST", "DICT", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "NONE",
    "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE"}


def check(condition, words):
    if not condition:
        raise AssertionError(words)


# --- protobuf ---

def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def message(data):
    """The fields of a message: number -> list of numbers and bytes."""
    fields, at = collections.defaultdict(list), 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            check(key & 7 == 2, "wire type %d" % (key & 7))
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
            check(len(value) == length, "a field is cut off")
        fields[key >> 3].append(value)
    return fields


def test_perfetto(data, recording):
    trace = message(data)
    check(set(trace) == {1}, "a trace has packets only: %s" % set(trace))
    tracks, last, most, instants, slices = {}, {}, collections.defaultdict(int), [], []
    for packet in map(message, trace[1]):
        check(packet[10] == [1], "one sequence")
        if packet[60]:  # track_descriptor
            descriptor = message(packet[60][0])
            if descriptor[3]:
                process = message(descriptor[3][0])
                check(process[1] == [4711] and b"train.py" in process[6][0], "the process is %s" % process)
                tracks[descriptor[1][0]] = "process"
            else:
                check(descriptor[5][0] in tracks, "the parent comes first")
                tracks[descriptor[1][0]] = descriptor[2][0].decode()
                check(not descriptor[8] or message(descriptor[8][0])[3] == [3], "counters are of bytes")
            continue
        event = message(packet[11][0])
        name = tracks[event[11][0]]
        if event[9] == [4]:
            check(packet[8], "a counter has a time")
            last[name] = event[30][0]
            most[name] = max(most[name], event[30][0])
        elif event[9] == [3]:
            instants.append(event[23][0].decode())
        else:
            slices.append(event[9][0])
    check(most["in use"] == recount.peak(recording)[0], "in use: %d, not %d" % (most["in use"], recount.peak(recording)[0]))
    live = collections.defaultdict(int)
    for event in recount.events(recording):
        if event["type"] in (recount.ALLOC, recount.FREE):
            live[event["owner"]] += event["bytes"] if event["type"] == recount.ALLOC else -event["bytes"]
    for owner, name in ((1, "PyTorch"), (2, "cuDNN"), (3, "cuBLAS"), (4, "NCCL")):
        check(last["owner: " + name] == live[owner], "%s ends with %d" % (name, last["owner: " + name]))
    check(last["limit"] == 8 << 30 and "tag: activations" in last, "limit and tags")
    check("refused 147 MiB for cuDNN (limit of the job)" in instants, "instants: %s" % instants)
    check(slices == [], "this one waits for nothing")


def test_perfetto_cards_and_waits(exported):
    """A process is one process however many cards it uses, and says which; waits of two threads do not overlap on a track."""
    names = [(67, 0, b"vm\0\0" + b"./serve"), (68, 1, b"simgpu\0GPU-1\0" + b"1000"), (65, 1, "\u20ac".encode() * 200)]
    data = exported("perfetto", names, [
        (recount.ALLOC, 10, 4096, 1 << 20, 0, 1, 0, 0), (recount.ALLOC, 11, 4096, 1 << 20, 0, 1, 0, 1),
        (recount.WAIT, 50, 0, 512, 0, 0, 30, 1), (recount.WAIT, 60, 0, 512, 0, 0, 30, 1), (recount.WAIT, 90, 0, 512, 0, 0, 20, 1)])
    tracks, open_slices, named = {}, {}, collections.Counter()
    events = []
    for packet in map(message, message(data)[1]):
        if packet[60]:
            descriptor = message(packet[60][0])
            check(descriptor[1][0] not in tracks, "a track is described once")
            tracks[descriptor[1][0]] = "process" if descriptor[3] else descriptor[2][0].decode()
            named[tracks[descriptor[1][0]]] += 1
            check(descriptor[3] or tracks[descriptor[1][0]][:3] == "GPU" or tracks[descriptor[5][0]][:3] == "GPU", "a track is in its card's")
        elif message(packet[11][0])[9] != [4]:
            event = message(packet[11][0])
            events.append((packet[8][0], event[9] != [2], event[11][0]))
    check(named["process"] == 1 and named["GPU 0"] == 1 and named["GPU 1 simgpu"] == 1, "tracks: %s" % named)
    check(named["waits"] == 2, "two waited at once: %s" % named)
    spans = []
    for time, begins, track in sorted(events):
        check(begins != (track in open_slices), "slices of a track follow each other")
        if begins:
            open_slices[track] = time
        else:
            spans.append((open_slices.pop(track), time))
    check(sorted(spans) == [(20, 50), (30, 60), (70, 90)] and not open_slices, "waits: %s" % spans)


def test_protoc(data):
    if not shutil.which("protoc"):
        print("no protoc here: only the decoder of this test was used")
        return
    text = subprocess.run(["protoc", "--decode_raw"], input=data, check=True, stdout=subprocess.PIPE).stdout.decode()
    check(text.count("\n1 {") > EVENTS and '"owner: cuDNN"' in text, "protoc reads something else")


# --- PyTorch's snapshot ---

def test_pytorch(data, recording):
    used = {opcode.name for opcode, _, _ in pickletools.genops(data)}
    check(used <= VIEWER_OPCODES, "the viewer does not know %s" % (used - VIEWER_OPCODES))
    check(data[:2] == b"\x80\x04", "protocol 4")
    snapshot = pickle.loads(data)
    check(set(snapshot) >= {"segments", "device_traces"}, "keys: %s" % set(snapshot))
    spans, refusals = {}, 0
    for segment in snapshot["segments"]:
        check(segment["segment_pool_id"] == (0, 0), "no private pool: %s" % (segment["segment_pool_id"],))
        at = segment["address"]
        for block in segment["blocks"]:
            check(block["address"] == at and block["state"] in ("active_allocated", "inactive"), "blocks have no gaps")
            at += block["size"]
        check(at == segment["address"] + segment["total_size"], "blocks fill their segment")
    live, context = {}, 0
    for event in snapshot["device_traces"][0]:
        check(event["frames"] and event["user_metadata"] and event["time_us"] > 0, "frames, words and time: %s" % event)
        if event["action"] == "segment_alloc":
            spans[event["addr"]] = event["size"]
        elif event["action"] == "segment_free":
            check(spans.pop(event["addr"]) == event["size"], "a segment goes as it came")
        elif event["action"] == "alloc":
            check(event["addr"] not in live, "an address is live once")
            check(any(low <= event["addr"] and event["addr"] + event["size"] <= low + size for low, size in spans.items()), "a block is in a segment")
            live[event["addr"]] = event["size"]
            context = event["size"] if event["category"] == "CUDA context" else context
        elif event["action"] == "free_completed":
            check(live.pop(event["addr"]) == event["size"], "a release has the size of its block")
        elif event["action"] == "oom":
            check(event["size"] == 147 << 20 and "device_free" in event, "the refusal: %s" % event)
            refusals += 1
    check(refusals == 1, "%d refusals" % refusals)
    active = sorted(block["size"] for segment in snapshot["segments"] for block in segment["blocks"] if block["state"] == "active_allocated")
    check(sorted(live.values()) == active, "the blocks that are left: %s" % active)
    check(spans == {segment["address"]: segment["total_size"] for segment in snapshot["segments"]}, "the segments that are left")
    check(context > 0 and "Peak " in snapshot["allocator_settings"]["GPU 0 NVIDIA H200"], "context and peak")
    blocks = [size for size, _ in recount.live_after(recording, 1 << 60)[1]]
    check(sum(active) >= sum(blocks) + context and not collections.Counter(blocks) - collections.Counter(active), "as the recording has them")
    check("unknown" in {event.get("category") for event in snapshot["device_traces"][0]}, "the viewer needs the category unknown")


def test_pytorch_odd_blocks(exported):
    """The viewer looks up the segment of every block: one without bytes has none. Text that was cut is still text."""
    names = [(64, 1, b"<b>lib</b>\0/x"), (65, 1, "\u20ac".encode() * 200)]
    snapshot = pickle.loads(exported("pytorch", names, [
        (recount.ALLOC, 10, 1 << 30, 1 << 20, 1, 1), (recount.ALLOC, 20, (1 << 30) + (1 << 20), 0, 1, 1), (recount.FREE, 30, 1 << 30, 1 << 20, 1, 1),
        (recount.REFUSAL, 40, 0, 1 << 40, 1, 1)]))
    actions = [event["action"] for event in snapshot["device_traces"][0]]
    check(actions == ["segment_alloc", "alloc", "free_requested", "free_completed", "segment_free", "oom", "snapshot"], "events: %s" % actions)
    check(snapshot["segments"] == [], "nothing is left")
    frames = snapshot["device_traces"][0][1]["frames"]
    check(frames[0]["filename"] == "<b>lib</b>" and frames[0]["name"].startswith("\u20ac"), "whose it is: %s" % frames)
    check("--stacks=on" in frames[1]["name"], "how to get call stacks: %s" % frames)


# --- text ---

def test_csv(data, recording):
    rows = list(csv.DictReader(data.decode().splitlines()))
    events = recount.events(recording)
    check(len(rows) == len(events), "%d rows for %d events" % (len(rows), len(events)))
    for row, event in zip(rows, events):
        check(int(row["time_ns"]) == event["time"] and int(row["bytes"]) == event["bytes"], "%s is not %s" % (row, event))
    check(max(int(row["used_bytes"]) for row in rows) == recount.peak(recording)[0], "the peak")
    check({"cuDNN", "PyTorch"} <= {row["owner"] for row in rows}, "owners")


def test_svg(data):
    root = xml.etree.ElementTree.fromstring(data)
    text = " ".join(root.itertext())
    check("Peak " in text and "limit 8.00 GiB" in text and "activations" in text, "the words of the picture: " + text)
    check(len(root.findall(".//{http://www.w3.org/2000/svg}path")) > 10, "areas")


def main():
    build = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="gpucap-export-") as folder:
        recording = os.path.join(folder, "a.gpucap")
        subprocess.run([os.path.join(build, "make_recording"), recording, str(EVENTS), "0", "plain"], check=True)
        written = {}
        for form in ("perfetto", "pytorch", "csv", "svg"):
            command = [os.path.join(build, "gpucap"), "export", "--to=" + form, recording]
            written[form] = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
            subprocess.run(command + ["-o", recording + "." + form], check=True)
            with open(recording + "." + form, "rb") as file:
                check(file.read() == written[form], form + ": a file has what stdout has")

        def exported(form, names, events):
            """What is written of a recording with these names and events."""
            path = os.path.join(folder, "odd.gpucap")
            recount.write(path, names, events)
            return subprocess.run([os.path.join(build, "gpucap"), "export", "--to=" + form, path], check=True, stdout=subprocess.PIPE).stdout

        test_perfetto(written["perfetto"], recording)
        test_perfetto_cards_and_waits(exported)
        test_protoc(written["perfetto"])
        test_pytorch(written["pytorch"], recording)
        test_pytorch_odd_blocks(exported)
        test_csv(written["csv"], recording)
        test_svg(written["svg"])
    print("export_readers: all is as it should be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
