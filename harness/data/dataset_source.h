/* The inside of struct dataset. Each format is one file (data_*.c) that fills it in. Only dataset.c, the
 * formats and the pipeline include this. Many threads call `read` at once, so a dataset does not change
 * after it was opened. */
#ifndef HARNESS_DATASET_SOURCE_H
#define HARNESS_DATASET_SOURCE_H

#include <stdbool.h>

#include "harness/data/dataset.h"
#include "harness/base/rng.h"

enum { SOURCE_MESSAGE_BYTES = 512 };

/* A buffer that grows as needed. Each thread has its own, so that reading soon allocates nothing. Zeroed at
 * first; the owner calls free(data). */
struct scratch {
    uint8_t *data;
    size_t capacity;
};

/* The destination of one sample. A source writes the members that its kind has. */
struct sample {
    uint8_t *bytes; /* images, and the target of pairs: [raw_h][raw_w][c], filled from the top left */
    struct coded_picture *coded; /* not NULL: `bytes` may get a JPEG file instead, of up to `room` bytes */
    size_t room;
    float *floats;
    int32_t *tokens;
    int32_t *labels;
    int h, w; /* size of the picture, at most raw_h x raw_w; of a coded one, after it was shrunk to that */
};

/* How far a picture may be changed and still match its label. */
struct source_augment {
    float shift;    /* moves the crop by up to this many pixels each way, edges repeated */
    float min_area; /* smallest crop, as a fraction of the picture; 1: always the largest */
    bool mirror;
};

/* SOURCE_NO_MEMORY is not the sample's fault: it ends the run, even with CORRUPT_SKIP. */
enum source_result { SOURCE_OK, SOURCE_CORRUPT, SOURCE_NO_MEMORY };

struct dataset {
    struct data_spec spec;
    const char *format;
    enum data_corrupt corrupt;
    struct source_augment augment;
    bool has_files;     /* samples are picture files: `read` serves sample->coded */
    bool worth_caching; /* reading costs more than copying */
    bool never_corrupt; /* read cannot fail */
    /* Reads sample `index` of the split. `rng` is this sample's own in this epoch, for random windows of
     * text. On failure, `message` names the file and what is wrong. */
    enum source_result (*read)(struct dataset *dataset, enum data_split split, uint64_t index,
                               struct rng *rng, struct sample *sample, struct scratch *scratch,
                               char message[SOURCE_MESSAGE_BYTES]);
    void (*close)(struct dataset *dataset);
};

/* Returns room for `bytes` bytes, or NULL. The old contents are lost. */
uint8_t *scratch_need(struct scratch *scratch, size_t bytes);

/* malloc with a message on failure, which names `what`. */
enum status source_alloc(void **out, size_t bytes, const char *what);

/* Open a dataset of one format. The path of the configuration exists; zeros in it are the format's to
 * replace. */
enum status data_open_synth(struct dataset **out, const struct data_config *config);
enum status data_open_idx(struct dataset **out, const struct data_config *config);
enum status data_open_cifar(struct dataset **out, const struct data_config *config);
enum status data_open_folder(struct dataset **out, const struct data_config *config);
enum status data_open_text(struct dataset **out, const struct data_config *config);

/* Sets h, w, c, raw_h and raw_w for pictures that are native_h x native_w in the files, and checks them. */
enum status source_set_picture(struct data_spec *spec, const struct data_config *config, int native_h,
                               int native_w, int channels);

#endif
