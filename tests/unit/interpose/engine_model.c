/* engine_model: a pool over the fake driver, and a list of live blocks to compare it with. See
 * engine_model.h. */
#include "tests/unit/interpose/engine_model.h"

#include <errno.h>
#include <string.h>

#include "interpose/pool/capture.h"

static bool budget_fits(void *owner, uint64_t bytes)
{
    const struct model *model = owner;

    return model->held + model->granted + bytes <= model->allowed;
}

static uint64_t budget_room(void *owner)
{
    const struct model *model = owner;

    return model->allowed - model->held - model->granted;
}

static bool budget_take(void *owner, uint64_t bytes)
{
    struct model *model = owner;

    if (model->granted + model->held + bytes > model->allowed)
        return false;
    model->granted += bytes;
    return true;
}

static void budget_settle(void *owner, uint64_t bytes, bool success)
{
    struct model *model = owner;

    CHECK(model->granted >= bytes);
    model->granted -= bytes;
    model->held += success ? bytes : 0;
}

static void budget_give(void *owner, uint64_t bytes)
{
    struct model *model = owner;

    CHECK(model->held >= bytes);
    model->held -= bytes;
}

void model_open(struct model *model, uint64_t capacity, uint64_t allowed)
{
    const struct pool_budget budget = {.owner = model,
                                       .fits = budget_fits,
                                       .room = budget_room,
                                       .take = budget_take,
                                       .settle = budget_settle,
                                       .give = budget_give};

    memset(model, 0, sizeof(*model));
    model->allowed = allowed;
    fake_start(capacity);
    CHECK(pool_open(&model->pool, FAKE_CONTEXT, 0, &budget, MODEL_SLACK) == 0);
    model->pool.requested = UINT64_MAX / 2;
}

void model_close(struct model *model)
{
    model_check(model);
    for (unsigned s = 0; s < FAKE_STREAMS; s++) {
        while (fake_progress(s))
            ;
    }
    pool_close(&model->pool, true);
    CHECK(model->held == 0 && model->granted == 0);
    fake_end();
}

static uint64_t rounded(uint64_t bytes)
{
    return (bytes + RANGES_UNIT - 1) / RANGES_UNIT * RANGES_UNIT;
}

/* What the pool counts as live for a block. */
static uint64_t counted(const struct model *model, uint64_t bytes)
{
    return model->pool.guard ? (bytes + RANGES_PAGE - 1) / RANGES_PAGE * RANGES_PAGE : rounded(bytes);
}

/* The first block at or behind an address. */
static size_t place_of(const struct model *model, uint64_t address)
{
    size_t low = 0, high = model->count;

    while (low < high) {
        const size_t middle = (low + high) / 2;

        if (model->blocks[middle].address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int model_alloc(struct model *model, uint64_t bytes)
{
    uint64_t address = 0;
    const int rc = pool_alloc(&model->pool, bytes, &address);

    if (rc) {
        CHECK(rc == -ENOMEM && address == 0);
        return rc;
    }
    CHECK(address % RANGES_UNIT == 0 && model->count < MODEL_BLOCKS);
    const size_t i = place_of(model, address);
    CHECK(i == model->count || address + rounded(bytes) <= model->blocks[i].address);
    CHECK(i == 0 || model->blocks[i - 1].address + rounded(model->blocks[i - 1].bytes) <= address);
    CHECK(fake_usable(address, bytes));
    /* With several streams, what is handed out is at rest, or all work that can touch it now is behind. What
     * was freed in the order of one stream before a capture began is used in that order; fake_work checks
     * that. */
    CHECK(streams_in_order() || capture_any() || !fake_in_the_way(address, bytes));
    memmove(&model->blocks[i + 1], &model->blocks[i], (model->count - i) * sizeof(*model->blocks));
    model->blocks[i] = (struct model_block){address, bytes, ++model->next_name};
    model->count++;
    model->live += counted(model, bytes);
    return 0;
}

void model_free(struct model *model, size_t i, bool done)
{
    CHECK(pool_free(&model->pool, model->blocks[i].address, done) == 0);
    model->live -= counted(model, model->blocks[i].bytes);
    model->count--;
    memmove(&model->blocks[i], &model->blocks[i + 1], (model->count - i) * sizeof(*model->blocks));
}

/* What the driver would not release. */
static uint64_t left_bytes(const struct model *model)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < model->pool.vmm.left_count; i++)
        bytes += model->pool.vmm.left[i].bytes;
    return bytes;
}

void model_check(struct model *model)
{
    CHECK(pool_check(&model->pool) == NULL);
    const struct pool_stats s = pool_stats(&model->pool);
    CHECK(s.live == model->live && s.live_count == model->count);
    CHECK(s.physical == fake_physical() && s.physical == fake_mapped() + left_bytes(model) &&
          s.physical == model->held);
    CHECK(s.live + s.cached + s.pending == s.physical);
    CHECK(model->granted == 0);
    CHECK(s.stranded <= s.cached && s.largest <= s.cached);
    for (size_t i = 0; i < model->count; i++) {
        const struct model_block *block = &model->blocks[i];

        CHECK(fake_usable(block->address, block->bytes));
    }
}

uint64_t model_size(struct model *model, unsigned bits)
{
    return 1 + fake_below(&model->random, UINT64_C(1) << fake_below(&model->random, bits + 1));
}

uintptr_t model_stream(unsigned stream)
{
    return 0x10000 + stream * 0x100;
}

void model_work(struct model *model, unsigned stream, const struct model_block *block)
{
    (void)model;
    const bool foreign = streams_submit_begin(model_stream(stream));
    fake_work(stream, block->address, block->bytes, block->name);
    if (foreign)
        streams_submit_end();
}
