/* recording_training: the events of a training that never ran: parameters, gradients and optimizer state that
 * stay, activations that grow and shrink with each step, workspace of cuDNN and cuBLAS for moments, an
 * evaluation with larger batches that is refused once, and memory lent between two processes. See
 * recording_make.h. */
#include "recording_make.h"

#include <stdlib.h>
#include <string.h>

#define MIB                   (UINT64_C(1) << 20)
#define US                    UINT64_C(1000)
#define MS                    UINT64_C(1000000)
#define LAYERS                24
#define BLOCKS_MAX            512
#define BASE                  UINT64_C(0x7f3000000000)
#define CONTEXT               (UINT64_C(486) << 20)
#define PID                   4711U
#define DAY_NS                UINT64_C(86400000000000)
#define TRAIN_EVENTS_PER_STEP (LAYERS * 8 + 2)

enum owner { PROGRAM, PYTORCH, CUDNN, CUBLAS, NCCL };
enum tag { NO_TAG, PARAMETERS, GRADIENTS, OPTIMIZER, ACTIVATIONS, WORKSPACE, INPUT };

struct block {
    uint64_t address, bytes, room;
    uint8_t owner, tag;
};

struct training {
    struct recording_make make;
    unsigned process;
    uint64_t now, limit, held, live;
    uint64_t random;
    struct block blocks[BLOCKS_MAX]; /* by address */
    size_t count;
};

static uint64_t random_below(struct training *training, uint64_t limit)
{
    training->random = training->random * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return (training->random >> 33) % limit;
}

static void pass_time(struct training *training, uint64_t ns)
{
    training->now += ns / 2 + random_below(training, ns + 1);
}

static void event(struct training *training, uint16_t type, struct recording_event event)
{
    event.time_ns = training->now;
    event.thread = event.tag == GRADIENTS ? PID + 4 : PID;
    recording_make_event(&training->make, type, event);
}

static void grow_to(struct training *training, uint64_t end)
{
    if (end - BASE <= training->held)
        return;
    const uint64_t bytes = (end - BASE - training->held + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
    training->held += bytes;
    event(training, RECORDING_GROW, (struct recording_event){.bytes = bytes, .other = training->held});
}

/* First fit. Returns the address. */
static uint64_t take(struct training *training, uint64_t bytes, enum owner owner, enum tag tag,
                     uint32_t stack)
{
    const uint64_t room = (bytes + 511) / 512 * 512;
    uint64_t address = BASE;
    size_t at = 0;

    while (at < training->count && training->blocks[at].address < address + room) {
        address = training->blocks[at].address + training->blocks[at].room;
        at++;
    }
    if (training->count == BLOCKS_MAX)
        abort();
    memmove(training->blocks + at + 1, training->blocks + at,
            (training->count++ - at) * sizeof(*training->blocks));
    training->blocks[at] = (struct block){address, bytes, room, (uint8_t)owner, (uint8_t)tag};
    training->live += bytes;
    grow_to(training, address + room);
    event(training, RECORDING_ALLOC,
          (struct recording_event){.address = address,
                                   .bytes = bytes,
                                   .kind = RECORDING_MALLOC,
                                   .owner = (uint16_t)owner,
                                   .tag = (uint16_t)tag,
                                   .stack = stack});
    return address;
}

static void give(struct training *training, uint64_t address)
{
    size_t at = 0;

    while (training->blocks[at].address != address)
        at++;
    const struct block block = training->blocks[at];
    memmove(training->blocks + at, training->blocks + at + 1,
            (--training->count - at) * sizeof(*training->blocks));
    training->live -= block.bytes;
    event(training, RECORDING_FREE,
          (struct recording_event){.address = address,
                                   .bytes = block.bytes,
                                   .kind = RECORDING_MALLOC,
                                   .owner = block.owner,
                                   .tag = block.tag});
}

/* Gives idle pages at the end back. */
static void trim(struct training *training)
{
    uint64_t end = BASE;

    if (training->count) {
        const struct block *last = &training->blocks[training->count - 1];

        end = (last->address + last->room + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
    }
    const uint64_t bytes = training->held - (end - BASE);
    training->held -= bytes;
    event(training, RECORDING_TRIM, (struct recording_event){.bytes = bytes, .other = training->held});
}

static void name(struct training *training, uint16_t type, uint32_t id, const char *first, const char *second)
{
    char text[512];
    const size_t length = strlen(first);

    snprintf(text, sizeof(text), "%s", first);
    snprintf(text + length + 1, sizeof(text) - length - 1, "%s", second);
    recording_make_name(&training->make, type, id, text, length + 1 + strlen(second));
}

static void names(struct training *training, const char *command)
{
    static const char *const tags[] = {"parameters",  "gradients", "optimizer state",
                                       "activations", "workspace", "input"};
    static const char program[] = "node7\0train-a\0";
    char text[512], modules[128];

    memcpy(text, program, sizeof(program));
    snprintf(text + sizeof(program) - 1, sizeof(text) - sizeof(program), "%s", command);
    recording_make_name(&training->make, RECORDING_PROGRAM, 0, text, sizeof(program) - 1 + strlen(command));
    recording_make_name(&training->make, RECORDING_DEVICE, 0,
                        "NVIDIA H200\0GPU-3f1c2b7a-0000-4a60-9c11-5d5b1e2a7c01\000150110011392", 66);
    name(training, RECORDING_OWNER, PYTORCH, "PyTorch", "/usr/lib/libc10_cuda.so");
    name(training, RECORDING_OWNER, CUDNN, "cuDNN", "/usr/lib/libcudnn_ops.so.9");
    name(training, RECORDING_OWNER, CUBLAS, "cuBLAS", "/usr/lib/libcublas.so.13");
    name(training, RECORDING_OWNER, NCCL, "NCCL", "/usr/lib/libnccl.so.2");
    for (uint32_t i = 0; i < sizeof(tags) / sizeof(*tags); i++)
        name(training, RECORDING_TAG, i + 1, tags[i], "");
    name(training, RECORDING_THREAD, PID, "python3", "");
    name(training, RECORDING_THREAD, PID + 4, "autograd", "");
    for (unsigned i = 0; i < 3; i++) {
        static const char *const paths[] = {"/usr/lib/libc10_cuda.so", "/usr/lib/libtorch_cuda.so",
                                            "/usr/bin/python3.11"};

        snprintf(modules, sizeof(modules), "%x %x 0 %s", 0x10000000U * (i + 1),
                 0x10000000U * (i + 1) + 0x800000, paths[i]);
        name(training, RECORDING_MODULE, 0, modules, "");
    }
    for (uint32_t i = 1; i <= LAYERS + 1; i++)
        recording_make_stack(
            &training->make, i,
            (const uint64_t[]){0x10001200 + i * 16, 0x20040000 + i * 256, 0x20007700, 0x30004400, 0x30001234},
            5);
}

/* ---- the model ---- */

static uint64_t layer_bytes(unsigned layer, unsigned scale)
{
    static const uint64_t sizes[] = {196, 196, 98, 98, 147, 49, 49, 25}; /* as of a ResNet, in MiB */

    return sizes[layer * 8 / LAYERS] * MIB * scale / 16;
}

static void lasting(struct training *training, unsigned scale)
{
    for (unsigned layer = 0; layer < LAYERS; layer++) {
        const uint64_t bytes = (4 + layer) * MIB * scale / 16 + random_below(training, 4096) * 256;

        take(training, bytes, PYTORCH, PARAMETERS, 1);
        pass_time(training, 400 * US);
        take(training, bytes, PYTORCH, GRADIENTS, 2);
        take(training, 2 * bytes, PYTORCH, OPTIMIZER, 3);
        pass_time(training, 400 * US);
    }
    event(training, RECORDING_ALLOC,
          (struct recording_event){.address = 1, /* a handle, which is never released */
                                   .bytes = 128 * MIB * scale / 16,
                                   .kind = RECORDING_VMM,
                                   .owner = NCCL,
                                   .stack = 4});
    take(training, 32 * MIB, CUBLAS, WORKSPACE, 5);
}

static void scratch(struct training *training, uint64_t bytes, enum owner owner, uint64_t ns)
{
    const uint64_t address = take(training, bytes, owner, WORKSPACE, 6);

    pass_time(training, ns);
    give(training, address);
}

static void refusal(struct training *training, uint64_t bytes)
{
    static const uint64_t apart[RECORDING_APART_COUNT + 1] = {
        [RECORDING_APART_PIECES] = 31,        [RECORDING_APART_IDLE] = 263 * MIB,
        [RECORDING_APART_JOINED] = 60 * MIB,  [RECORDING_APART_WORK] = 30 * MIB,
        [RECORDING_APART_PARTS] = 173 * MIB,  [RECORDING_APART_DRIVER] = 16 * MIB,
        [RECORDING_APART_OTHERS] = 2171 * MIB};

    for (int i = RECORDING_APART_IDLE; i <= RECORDING_APART_OTHERS; i++) {
        if (apart[i])
            event(training, RECORDING_APART,
                  (struct recording_event){.bytes = apart[i],
                                           .other = i == RECORDING_APART_IDLE ? *apart : 0,
                                           .limit = (uint8_t)i});
    }
    event(training, RECORDING_REFUSAL,
          (struct recording_event){.bytes = bytes,
                                   .other = 94 * MIB,
                                   .owner = CUDNN,
                                   .tag = WORKSPACE,
                                   .limit = RECORDING_LIMIT_JOB,
                                   .kind = RECORDING_MALLOC,
                                   .stack = 6});
}

/* One step: what is allocated in the forward pass is released in the backward pass, last first. */
static void step(struct training *training, unsigned scale, bool refuse)
{
    uint64_t kept[LAYERS];
    const uint64_t input = take(training, 38 * MIB * scale / 16, PYTORCH, INPUT, 7);

    for (unsigned layer = 0; layer < LAYERS; layer++) {
        kept[layer] = take(training, layer_bytes(layer, scale), PYTORCH, ACTIVATIONS, layer + 1);
        pass_time(training, 15 * US);
        scratch(training, layer % 3 ? 24 * MIB : 180 * MIB * scale / 16, CUDNN, 40 * US);
    }
    if (refuse && training->process == 0)
        refusal(training, 147 * MIB);
    for (unsigned layer = LAYERS; layer-- > 0;) {
        const uint64_t gradient = take(training, layer_bytes(layer, scale), PYTORCH, GRADIENTS, layer + 2);

        pass_time(training, 20 * US);
        scratch(training, layer % 4 ? 40 * MIB : 260 * MIB * scale / 16, CUDNN, 60 * US);
        give(training, kept[layer]);
        give(training, gradient);
    }
    give(training, input);
    pass_time(training, 30 * US);
}

/* Idle memory is lent to the other process, which has waited for it. */
static void special(struct training *training, uint64_t number)
{
    if (training->process == 0) {
        training->now += 40 * MS; /* validates */
        trim(training);
        event(training, RECORDING_LEND,
              (struct recording_event){.bytes = 700 * MIB, .other = PID + 19 * (1 - training->process)});
    } else {
        training->now += 40 * MS;
        event(training, RECORDING_WAIT,
              (struct recording_event){.bytes = 512 * MIB,
                                       .other = 38 * MS,
                                       .owner = PYTORCH,
                                       .kind = RECORDING_MALLOC,
                                       .limit = RECORDING_LIMIT_JOB});
        event(training, RECORDING_BORROW, (struct recording_event){.bytes = 700 * MIB, .other = PID});
    }
    if (number == 1)
        event(training, RECORDING_STITCH, (struct recording_event){.bytes = 96 * MIB, .other = 5});
}

void recording_make_training(const char *path, const struct recording_training *options)
{
    static const char *const commands[] = {"python3 train.py --epochs 3 --batch 256",
                                           "python3 evaluate.py --checkpoint last.pt"};
    struct training *training = calloc(1, sizeof(*training));
    const unsigned scale = options->process ? 5 : 16;
    const struct recording_head head = {
        .pid = PID + 19 * options->process,
        .began_mono_ns = DAY_NS + options->process * 5 * MS,
        .began_unix_ns = UINT64_C(1790000000) * 1000 * MS + options->process * 5 * MS,
        .flags = RECORDING_STACKS,
    };

    if (!training || !recording_make_open(&training->make, path, head, options->codec))
        exit(77);
    training->process = options->process;
    training->random = options->process + 1;
    training->limit = UINT64_C(8) << 30;
    names(training, options->command ? options->command : commands[options->process % 2]);
    event(training, RECORDING_LIMIT,
          (struct recording_event){.bytes = training->limit, .other = RECORDING_LIMIT_JOB});
    event(training, RECORDING_CONTEXT, (struct recording_event){.bytes = CONTEXT, .other = 0x5500});
    if (options->process == 1)
        event(training, RECORDING_DRIVER, (struct recording_event){.bytes = 24 * MIB});
    lasting(training, scale);
    const uint64_t steps = options->events / TRAIN_EVENTS_PER_STEP + 3;
    for (uint64_t i = 0; i < steps; i++) {
        const bool larger = i > steps / 2 && i < steps * 5 / 8;

        step(training, larger ? scale + scale / 4 : scale, larger && (i + 2) * 8 / 5 >= steps);
        if (i == steps * 5 / 8 || i == steps * 3 / 4)
            special(training, i == steps * 3 / 4);
        if (i % 16 == 15)
            event(
                training, RECORDING_USED,
                (struct recording_event){.bytes = training->held + CONTEXT + (128 * scale / 16 + 22) * MIB});
    }
    while (training->count > 1) /* one block is never released */
        give(training, training->blocks[training->count - 2].address);
    recording_make_close(&training->make, training->now, !options->killed);
    free(training);
}
