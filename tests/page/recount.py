"""recount: recordings read and written a second time, in the plainest way: what the page shows is held against it.

Reads and writes blocks that are not compressed. The layout is interpose/see/recording.h.
"""
import functools
import struct

HEAD = struct.Struct("<8sIIQQII")
BLOCK = struct.Struct("<IIIIQ")
EVENT = struct.Struct("<HHHBBQQQQIHHII")
MAGIC, BLOCK_MAGIC = b"GPUCAPR\0", 0x4B4C4247
ALLOC, FREE, GROW, TRIM, USED, WAIT, REFUSAL, LIMIT, CONTEXT, DRIVER = 1, 2, 3, 4, 6, 9, 10, 11, 12, 16
MALLOC, IMPORT = 1, 7


@functools.lru_cache(maxsize=None)
def events(path):
    """Dictionaries of the events, by time."""
    with open(path, "rb") as file:
        data = file.read()
    found, at = [], HEAD.size
    while at < len(data):
        _, codec, stored, _, _ = BLOCK.unpack_from(data, at)
        assert codec == 0
        at += BLOCK.size
        end = at + stored
        while at < end:
            kind, size = struct.unpack_from("<HH", data, at)
            if kind < 64:
                keys = ("type", "size", "device", "kind", "limit", "time", "address", "bytes", "other", "thread", "owner", "tag", "stack")
                found.append(dict(zip(keys, EVENT.unpack_from(data, at))))
            at += size
    return sorted(found, key=lambda event: event["time"])


def live_after(path, count):
    """(bytes, address) of the blocks that are live after so many allocations and releases, largest first, and the time
    of the last one."""
    live, time = {}, 0
    for event in [event for event in events(path) if event["type"] in (ALLOC, FREE)][:count]:
        time = event["time"]
        if event["type"] == ALLOC:
            live[event["kind"], event["address"]] = event["bytes"]
        else:
            live.pop((event["kind"], event["address"]))
    return time, sorted(((size, key[1]) for key, size in live.items()), reverse=True)


def peak(path):
    """(bytes, time) when most is in use."""
    live = pooled = held = context = beyond = driver = 0
    most, when = 0, 0
    for event in events(path):
        kind, size = event["type"], event["bytes"]
        if kind in (ALLOC, FREE):
            change = size if kind == ALLOC else -size
            live += change
            pooled += change if event["kind"] == MALLOC else 0
        elif kind in (GROW, TRIM):
            held = event["other"]
        elif kind == CONTEXT:
            context = size
        elif kind == DRIVER:
            driver = size
        elif kind == USED:
            beyond = max(0, size - live - context - driver - max(0, held - pooled))
        used = live + context + beyond + driver + max(0, held - pooled)
        if used > most:
            most, when = used, event["time"]
    return most, when


def checksum(data):
    total = 0xCBF29CE484222325
    for byte in data:
        total = (total ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return total


def name(kind, number, text):
    padded = text + b"\0" * (8 - len(text) % 8)
    return struct.pack("<HHI", kind, 8 + len(padded), number) + padded


def write(path, names, block_events, began=0, pid=4242):
    """A recording that begins at that time, with names (type, id, bytes) and events (type, time, address, bytes, owner, tag[, other[, device[, limit]]])."""
    records = b"".join(name(*entry) for entry in names)
    for kind, time, address, size, owner, tag, *more in block_events:
        other, device, limit = (*more, *(0, 0, 2)[len(more):])
        records += EVENT.pack(kind, EVENT.size, device, MALLOC, limit, time, address, size, other, 1, owner, tag, 0, 0)
    with open(path, "wb") as file:
        file.write(HEAD.pack(MAGIC, 1, HEAD.size, began, began, pid, 0))
        file.write(BLOCK.pack(BLOCK_MAGIC, 0, len(records), len(records), checksum(records)) + records)
