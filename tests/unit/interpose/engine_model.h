/* engine_model: a pool over the fake driver, and a simple model of it: a sorted list of the live blocks and a
 * budget. Every step compares the two. Not for threads: each test has one model. */
#ifndef GPUCAP_TESTS_ENGINE_MODEL_H
#define GPUCAP_TESTS_ENGINE_MODEL_H

#include "tests/unit/interpose/engine_fake.h"
#include "interpose/pool/pool.h"

#define MODEL_BLOCKS 8192
#define MODEL_SLACK  20 /* per mille: the default of the option */

struct model_block {
    uint64_t address, bytes, name;
};

struct model {
    struct pool pool;
    struct model_block blocks[MODEL_BLOCKS]; /* by address */
    size_t count;
    uint64_t live; /* bytes, in units of 512, or of pages if the pool guards its blocks */
    uint64_t next_name;
    struct fake_random random;
    /* the budget */
    uint64_t allowed, granted, held;
};

/* Opens the pool, with so many bytes requested before that it may always move chunks; a test may set
 * pool.requested. */
void model_open(struct model *model, uint64_t capacity, uint64_t allowed);
/* Closes the pool; nothing may be left of it. */
void model_close(struct model *model);

/* Call pool_alloc or pool_free, return the answer, and update the list of blocks. */
int model_alloc(struct model *model, uint64_t bytes);
void model_free(struct model *model, size_t i, bool done);
/* Checks everything that must always hold. */
void model_check(struct model *model);

/* Returns a random size from one byte to hundreds of MiB, each magnitude equally often. */
uint64_t model_size(struct model *model, unsigned bits);

/* The key of a stream of the fake as the fence knows it. */
uintptr_t model_stream(unsigned stream);
/* Submits work on a block, as a program would. */
void model_work(struct model *model, unsigned stream, const struct model_block *block);

#endif
