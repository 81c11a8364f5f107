/* What happens to a picture between its bytes and the model: where it is cut, whether it is mirrored, how it
 * is made worse (pairs), and the same mathematics as the operation image_prepare, on the host. Pure
 * functions. */
#ifndef HARNESS_AUGMENT_H
#define HARNESS_AUGMENT_H

#include "kernels/ops.h"
#include "harness/data/dataset_source.h"

/* The largest cut in the middle with the proportions that the model sees. */
struct ops_crop augment_middle(const struct data_spec *spec, int h, int w);

/* A random one, as far as the source allows. */
struct ops_crop augment_random(const struct data_spec *spec, const struct source_augment *allowed, int h,
                               int w, struct rng *rng);

/* bytes[raw_h][raw_w][c] with a picture of h x w in its top left corner: the rest becomes the picture's
 * nearest pixel, so that cutting at its edge finds the edge repeated. */
void augment_extend(const struct data_spec *spec, uint8_t *bytes, int h, int w);

/* out[h][w][c] from bytes[raw_h][raw_w][c], as image_prepare does it. */
void augment_prepare(const struct data_spec *spec, const struct ops_crop *crop, const uint8_t *bytes,
                     float *out);

/* A worse copy of a picture, to be repaired: noise, and a square that is grey. */
void augment_degrade(const struct data_spec *spec, const uint8_t *from, uint8_t *to, int h, int w,
                     struct rng *rng);

#endif
