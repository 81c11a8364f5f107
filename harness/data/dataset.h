/* A dataset opens a file, a folder or nothing (synthetic data), describes its samples, and reads any of
 * them by number from any thread. It knows nothing of the device, of order or of batches (pipeline.h).
 * Files are untrusted: a bad one gives a message with its name, never a crash or unbounded memory. */
#ifndef HARNESS_DATASET_H
#define HARNESS_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"

/* images: a picture and its class. pairs: a picture and the picture to make of it. tokens: a window of
 * text, and for each token the one that follows. floats: a vector and its class. */
enum data_kind { DATA_IMAGES, DATA_PAIRS, DATA_TOKENS, DATA_FLOATS };

/* In the order of their names in the option table. auto: synthetic without a path, else whatever format the
 * path has. */
enum data_format { DATA_AUTO, DATA_SYNTHETIC, DATA_IDX, DATA_CIFAR, DATA_FOLDER, DATA_TEXT };

enum data_split { DATA_TRAIN, DATA_VALIDATION, DATA_SPLITS };

/* What to do about a file or record that cannot be read or decoded. skip: name it once on stderr and
 * continue; in training another sample replaces it, in validation its label is -1, which is not counted.
 * refuse: end the run. */
enum data_corrupt { CORRUPT_SKIP, CORRUPT_REFUSE };

enum { DATA_MAX_CHANNELS = 4, DATA_MAX_SIDE = 4096 };

/* What a model needs to know about its data. */
struct data_spec {
    enum data_kind kind;
    int h, w, c;                 /* a sample's shape for the model; floats: 1, 1, length; tokens: 0 */
    int raw_h, raw_w;            /* images and pairs: its shape in bytes, before preparation */
    int classes;                 /* labels are in [0, classes); 0 for pairs and tokens */
    int vocabulary;              /* tokens are in [0, vocabulary) */
    int length;                  /* tokens of a sample */
    uint64_t count[DATA_SPLITS]; /* samples; may be 0 for validation */
    bool divided; /* a random part, chosen by the seed and how many there are, is for validation */
    float mean[DATA_MAX_CHANNELS];
    float deviation[DATA_MAX_CHANNELS];
};

/* A zero means the default, which is given in brackets. */
struct data_config {
    const char *path; /* file or folder; NULL: synthetic */
    enum data_format format;
    enum data_kind kind; /* synthetic: any; a folder: images or pairs; other formats have one kind */
    int image;           /* side of the model's picture (as in the files; a folder: 64) */
    int raw;             /* side before preparation (as in the files; a folder: image * 3 / 2) */
    int length;          /* tokens of a sample (128) */
    int classes;         /* synthetic: 10; vocabulary for tokens (256) */
    uint64_t samples;    /* synthetic: samples of an epoch (60,000); validation has a sixth of it */
    double validation;   /* folder without split, text: fraction for validation (0.1) */
    bool no_validation;  /* no validation split; `validation` cannot say that, its 0 is the default */
    uint64_t seed;       /* chooses synthetic data, and the files for validation */
    enum data_corrupt corrupt;
};

/* A JPEG file that is left to the device to decode. */
struct coded_picture {
    uint32_t bytes; /* of the file; 0: the sample was decoded */
    uint32_t h, w;  /* of the picture in it */
};

struct dataset;

/* On failure prints the path and what was expected there. */
enum status dataset_open(struct dataset **out, const struct data_config *config);
void dataset_close(struct dataset *dataset);
const struct data_spec *dataset_spec(const struct dataset *dataset);

/* Sets the size to which a picture of h x w is shrunk before it is prepared. */
void dataset_fit(const struct data_spec *spec, uint32_t h, uint32_t w, uint32_t *fit_h, uint32_t *fit_w);

/* Returns true if the samples are picture files, which can be left coded (struct pipeline_config). */
bool dataset_has_files(const struct dataset *dataset);

/* Returns the name of the format in use, such as "cifar": what `auto` has found. */
const char *dataset_format_name(const struct dataset *dataset);

#endif
