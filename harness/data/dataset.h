/* Where samples come from: a dataset opens a file, a folder or nothing (synthetic), says what its samples
 * are, and reads any one of them by its number, from any thread. It knows nothing of the device, of order or
 * of batches: that is pipeline.h. Files are hostile: what is wrong with one is said with its name, and never
 * crashes or takes memory without bound. */
#ifndef HARNESS_DATASET_H
#define HARNESS_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"

/* images: a picture and its class; pairs: a picture and the picture to be made of it; tokens: a window of
 * text and the token that follows each of its own; floats: a vector and its class. */
enum data_kind { DATA_IMAGES, DATA_PAIRS, DATA_TOKENS, DATA_FLOATS };

/* In the order of their names in the table of options. auto: synthetic without a path, else what is found
 * there. */
enum data_format { DATA_AUTO, DATA_SYNTHETIC, DATA_IDX, DATA_CIFAR, DATA_FOLDER, DATA_TEXT };

enum data_split { DATA_TRAIN, DATA_VALIDATION, DATA_SPLITS };

/* A file or record that cannot be read or decoded: skip names it once on stderr and goes on (in training
 * another sample takes its place; in validation its label is -1, which counts for nothing), refuse ends the
 * run. */
enum data_corrupt { CORRUPT_SKIP, CORRUPT_REFUSE };

enum { DATA_MAX_CHANNELS = 4, DATA_MAX_SIDE = 4096 };

/* What a model must know of its data. */
struct data_spec {
    enum data_kind kind;
    int h, w, c;                 /* a sample as the model sees it; floats: 1, 1, how many; tokens: 0 */
    int raw_h, raw_w;            /* images and pairs: a sample's bytes before they are prepared */
    int classes;                 /* labels are in [0, classes); 0 for pairs and tokens */
    int vocabulary;              /* tokens are in [0, vocabulary) */
    int length;                  /* tokens of a sample */
    uint64_t count[DATA_SPLITS]; /* samples; of the validation split it may be 0 */
    float mean[DATA_MAX_CHANNELS];
    float deviation[DATA_MAX_CHANNELS];
};

/* A zero takes the default that stands behind each. */
struct data_config {
    const char *path; /* file or folder; NULL: synthetic */
    enum data_format format;
    enum data_kind kind; /* synthetic: any; a folder: images or pairs; else what the format is */
    int image;           /* side of the picture that the model sees (as in the files; a folder: 64) */
    int raw;           /* side of the picture before preparation (as in the files; a folder: image * 3 / 2) */
    int length;        /* tokens of a sample (128) */
    int classes;       /* synthetic: 10; vocabulary for tokens (256) */
    uint64_t samples;  /* synthetic: of an epoch (60,000); a sixth as many for validation */
    double validation; /* folder without split, text: fraction for validation (0.1) */
    bool no_validation; /* and none of it, which a zero there cannot say */
    uint64_t seed;      /* synthetic data, and which files are for validation */
    enum data_corrupt corrupt;
};

struct dataset;

/* On failure the message is printed, with the path and what was expected there. */
enum status dataset_open(struct dataset **out, const struct data_config *config);
void dataset_close(struct dataset *dataset);
const struct data_spec *dataset_spec(const struct dataset *dataset);

/* "cifar", "folder", ...: what auto found. */
const char *dataset_format_name(const struct dataset *dataset);

#endif
