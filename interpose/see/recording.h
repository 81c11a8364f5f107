/* recording: the format of a recording (`gpucap run --record=FILE`), as written by the library and read by
 * the command. docs/recording.md describes it for other readers.
 *
 * A file is one struct recording_head, then blocks. A block is one struct recording_block and `stored` bytes,
 * which hold `plain` bytes of records, compressed as `codec` says. Blocks stand alone: a file that was cut
 * off is good up to its last whole block. All numbers are little-endian. Each record begins with its type and
 * its size, so that a reader can skip types that it does not know.
 *
 * Events of one thread are in order of time; those of several threads are mixed, so a reader sorts by time.
 * An allocation is stamped after the memory was obtained, a release before the memory is given up: sorted, a
 * release comes before the next allocation of the same address. A name is defined (records RECORDING_OWNER to
 * RECORDING_MODULE) in the same block as its first use, or in an earlier one.
 *
 * A change of the layout needs a new RECORDING_VERSION; a new type of record does not.
 */
#ifndef GPUCAP_RECORDING_H
#define GPUCAP_RECORDING_H

#include <stddef.h>
#include <stdint.h>

#define RECORDING_MAGIC   "GPUCAPR"   /* with the terminating zero: 8 bytes */
#define RECORDING_BLOCK   0x4b4c4247u /* "GBLK" */
#define RECORDING_VERSION 1

struct recording_head {
    char magic[8];
    uint32_t version;
    uint32_t head_bytes;    /* of this structure; blocks begin there */
    uint64_t began_unix_ns; /* CLOCK_REALTIME at the moment 0 of the events */
    uint64_t
        began_mono_ns; /* CLOCK_MONOTONIC at the same moment: equal clocks for the processes of one machine */
    uint32_t pid;
    uint32_t flags; /* RECORDING_STACKS */
};

#define RECORDING_STACKS 1u /* events have call stacks */

enum { RECORDING_PLAIN = 0, RECORDING_ZSTD = 1 };

struct recording_block {
    uint32_t magic;
    uint32_t codec;
    uint32_t stored;
    uint32_t plain;    /* at most RECORDING_BLOCK_MAX */
    uint64_t checksum; /* FNV-1a, 64 bits, of the stored bytes */
};

#define RECORDING_BLOCK_MAX (1u << 20)

static inline uint64_t recording_checksum(const void *bytes, size_t count)
{
    const unsigned char *byte = bytes;
    uint64_t sum = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < count; i++)
        sum = (sum ^ byte[i]) * UINT64_C(0x100000001b3);
    return sum;
}

struct recording_record {
    uint16_t type;
    uint16_t size; /* bytes of the record, this head included; a multiple of 8 */
};

enum recording_type {
    /* Events: struct recording_event. What `bytes` and `other` mean stands behind each. */
    RECORDING_ALLOC = 1, /* a block: its size; the stream where known, else 0 */
    RECORDING_FREE,      /* the same block is released by the program: its size; the stream where known */
    RECORDING_GROW,      /* a pool took memory from the driver: bytes taken; bytes that all pools hold now */
    RECORDING_TRIM,   /* a pool gave memory back to the driver: bytes given; bytes that all pools hold now */
    RECORDING_STITCH, /* free chunks were joined for a request: bytes joined; number of chunks */
    RECORDING_USED,   /* the driver's figure for this process (NVML or the context's): bytes; idle in pools */
    RECORDING_LEND,   /* idle memory was given back because others asked: bytes; the asker's pid, 0 unknown */
    RECORDING_BORROW, /* memory that others gave back for our request: bytes; the giver's pid, 0 unknown */
    RECORDING_WAIT,   /* a request waited: bytes asked for; nanoseconds waited, ending at `time_ns` */
    RECORDING_REFUSAL, /* a request was refused: bytes asked for; the largest that would have fitted;
                        * `address` is the job's limit if that or the process's own refused (0: neither, or
                        * not known) */
    RECORDING_LIMIT,   /* the limit that applies: bytes (UINT64_MAX: none); enum recording_limit */
    RECORDING_CONTEXT, /* bytes that a card's contexts hold for themselves now (0: they ended); card + 1 */
    RECORDING_DROPPED, /* events that were lost since the last such record: number in `bytes` */
    RECORDING_END,     /* the recording ended as it should (last record) */
    RECORDING_APART, /* what idled when the thread's next RECORDING_REFUSAL was noted: bytes; for the first of
                      * them the number of pieces; `limit` is enum recording_apart */
    RECORDING_DRIVER, /* what the driver's own stream-ordered pools of the card hold idle now: bytes */
    /* Names: struct recording_name. */
    RECORDING_OWNER = 64, /* id -> name such as "cuDNN", and after its zero the path of the library */
    RECORDING_TAG,        /* id -> name */
    RECORDING_THREAD,     /* id -> the thread's name */
    RECORDING_PROGRAM,    /* text: host name, zero, job's name, zero, command line with spaces in between */
    RECORDING_DEVICE,     /* id = device; text: name, zero, UUID, zero, total bytes as decimal digits */
    RECORDING_MODULE, /* for stacks: start address, end, file offset (hexadecimal), path; spaces between */
    /* Stacks: struct recording_stack. */
    RECORDING_STACK = 96, /* id -> return addresses, innermost first */
};

/* What sort of memory a block is. */
enum recording_kind {
    RECORDING_MALLOC = 1, /* cudaMalloc, cuMemAlloc, pitched memory */
    RECORDING_ASYNC,      /* cudaMallocAsync, cuMemAllocFromPoolAsync */
    RECORDING_VMM,        /* cuMemCreate */
    RECORDING_ARRAY,
    RECORDING_GRAPH, /* allocated by a graph's nodes */
    RECORDING_MANAGED,
    RECORDING_IMPORT, /* opened from another process: counts there, not here */
};

/* Which limit a RECORDING_LIMIT or RECORDING_REFUSAL speaks of. */
enum recording_limit {
    RECORDING_LIMIT_PROCESS = 1,
    RECORDING_LIMIT_JOB,
    RECORDING_LIMIT_ADMIN, /* /etc/gpucap.conf */
    RECORDING_LIMIT_CARD,  /* the card itself is full */
    RECORDING_LIMIT_KEPT,  /* what is free on the card is kept for other jobs (their min) */
};

/* What idle memory at a refusal was, and what kept it from being one block. IDLE is the sum of JOINED and of
 * WORK to STUCK; what follows is beside it. */
enum recording_apart {
    RECORDING_APART_PIECES,  /* a number, not bytes; in a file it is in IDLE's `other` */
    RECORDING_APART_IDLE,    /* all that gpucap's pools of the card held idle */
    RECORDING_APART_JOINED,  /* of it, the largest block that could be made */
    RECORDING_APART_WORK,    /* freed, and work on a stream may still use it */
    RECORDING_APART_CAPTURE, /* the same, and an open capture keeps the end of that work from being known */
    RECORDING_APART_PINNED,  /* freed, and another process or device may still reach it (IPC, dma-buf) */
    RECORDING_APART_SMALL,   /* between small blocks, in pages that they share */
    RECORDING_APART_PARTS,   /* parts of chunks that also hold live blocks: a chunk moves only whole */
    RECORDING_APART_SIZES,   /* chunks larger than the request, which could not be released yet */
    RECORDING_APART_STUCK,   /* the driver refused to unmap or release it */
    RECORDING_APART_DRIVER,  /* idle in the driver's own stream-ordered pools, kept for their streams */
    RECORDING_APART_CARDS,   /* idle in gpucap's pools of other cards */
    RECORDING_APART_COUNT,
    /* In recordings alone, and not idle: */
    RECORDING_APART_OTHERS = RECORDING_APART_COUNT /* what the others of the job had, if its limit is noted */
};

struct recording_event {
    struct recording_record head;
    uint16_t device;  /* as the program numbers them */
    uint8_t kind;     /* enum recording_kind, 0: does not apply */
    uint8_t limit;    /* enum recording_limit, for refusals; enum recording_apart */
    uint64_t time_ns; /* since the recording began */
    uint64_t address; /* 0: does not apply; for handles (RECORDING_VMM, arrays) any unique number */
    uint64_t bytes;
    uint64_t other;
    uint32_t thread;
    uint16_t owner; /* 0: the program itself, or not known */
    uint16_t tag;   /* 0: none */
    uint32_t stack; /* 0: none */
    uint32_t spare;
};

struct recording_name {
    struct recording_record head;
    uint32_t id;
    char text[]; /* to the end of the record, padded with zeros */
};

struct recording_stack {
    struct recording_record head;
    uint32_t id;
    uint64_t frames[];
};

_Static_assert(sizeof(struct recording_head) == 40, "the layout of a recording is frozen");
_Static_assert(sizeof(struct recording_block) == 24, "the layout of a recording is frozen");
_Static_assert(sizeof(struct recording_event) == 56, "the layout of a recording is frozen");

#endif
