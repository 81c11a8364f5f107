/* Prepares a picture for the model: chooses the crop and mirroring, makes the degraded copy of a pair, and
 * computes the operation image_prepare on the host. Pure functions. */
#ifndef HARNESS_AUGMENT_H
#define HARNESS_AUGMENT_H

#include "kernels/ops.h"
#include "harness/data/dataset_source.h"

/* Returns the largest crop in the middle of an h x w picture that has the model's aspect ratio. */
struct ops_crop augment_middle(const struct data_spec *spec, int h, int w);

/* Returns a random crop within what `allowed` permits. */
struct ops_crop augment_random(const struct data_spec *spec, const struct source_augment *allowed, int h,
                               int w, struct rng *rng);

/* Fills bytes[raw_h][raw_w][c] outside the h x w picture in its top left corner with the nearest pixel of
 * the picture, so that a crop across its edge sees the edge repeated. */
void augment_extend(const struct data_spec *spec, uint8_t *bytes, int h, int w);

/* Computes out[h][w][c] from bytes[raw_h][raw_w][c], with the same results as image_prepare. */
void augment_prepare(const struct data_spec *spec, const struct ops_crop *crop, const uint8_t *bytes,
                     float *out);

/* Writes a degraded copy of a picture, which the model learns to restore: noise, and a grey square. */
void augment_degrade(const struct data_spec *spec, const uint8_t *from, uint8_t *to, int h, int w,
                     struct rng *rng);

#endif
