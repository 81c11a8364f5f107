/* The part of an input that decodes JPEG files on the device. A batch then holds files (struct coded_picture)
 * beside pictures that the host has decoded because the device cannot. All of them end up in set->raw, as if
 * the host had decoded them all, except that another decoder rounds differently. */
#ifndef HARNESS_INPUT_DECODE_H
#define HARNESS_INPUT_DECODE_H

#include "harness/train/input.h"

/* Opens a decoder if `decode` asks for one, or says auto, the card has JPEG engines and the host neither
 * keeps decoded pictures nor has workers enough to decode them. Fails if `decode` is DECODE_GPU and training
 * data cannot be decoded there. */
enum status input_decode_open(struct input *input, const struct dataset *dataset,
                              const struct pipeline_config *config, enum decode_place decode);
void input_decode_close(struct input *input);

/* Takes the memory that the batch needs. Call before feed_begin. */
enum status input_decode_need(struct input *input, struct input_set *set, const struct batch *batch);

/* Queues the decoding on the feed's stream. Call after feed_begin and before labels and crops are copied:
 * what nvJPEG refuses is decoded on the host, and a sample that is damaged is replaced, or refused. */
enum status input_decode(struct input *input, struct input_set *set, struct batch *batch);

#endif
