/* What stands behind struct dataset: each format is one file (data_*.c) that fills this structure. Only
 * dataset.c, the formats and the pipeline see it. `read` is called by many threads at once, so a format does
 * not change after it was opened. */
#ifndef HARNESS_DATASET_SOURCE_H
#define HARNESS_DATASET_SOURCE_H

#include <stdbool.h>

#include "harness/data/dataset.h"
#include "harness/base/rng.h"

enum { SOURCE_MESSAGE_BYTES = 512 };

/* A buffer that grows, one per thread, so that reading allocates nothing once it is warm. All zero at first;
 * free(data) at the end. */
struct scratch {
    uint8_t *data;
    size_t capacity;
};

/* Where one sample goes; a source writes what its kind has. */
struct sample {
    uint8_t *bytes; /* images and pairs (the target): [raw_h][raw_w][c], the picture in the top left corner */
    float *floats;
    int32_t *tokens;
    int32_t *labels;
    int h, w; /* of the picture, at most raw_h and raw_w */
};

/* How pictures of this source may be changed and still be what their label says. */
struct source_augment {
    float shift;    /* the cut moves by up to this many pixels each way, edges repeated */
    float min_area; /* the cut is at least this part of the picture; 1: always as large as it can be */
    bool mirror;
};

/* SOURCE_NO_MEMORY: it is not the sample's fault, so it ends the run whatever corrupt says. */
enum source_result { SOURCE_OK, SOURCE_CORRUPT, SOURCE_NO_MEMORY };

struct dataset {
    struct data_spec spec;
    const char *format;
    enum data_corrupt corrupt;
    struct source_augment augment;
    bool worth_caching; /* reading costs more than a copy */
    bool never_corrupt; /* read cannot fail */
    /* Sample `index` of the split. `rng` is of this sample at this point of the run (random windows of text).
     * If it cannot, message says which file and what is wrong. */
    enum source_result (*read)(struct dataset *dataset, enum data_split split, uint64_t index,
                               struct rng *rng, struct sample *sample, struct scratch *scratch,
                               char message[SOURCE_MESSAGE_BYTES]);
    void (*close)(struct dataset *dataset);
};

/* Room for bytes in the scratch buffer, or NULL; the contents are lost. */
uint8_t *scratch_need(struct scratch *scratch, size_t bytes);

/* malloc with a message; what it is for goes into it. */
enum status source_alloc(void **out, size_t bytes, const char *what);

/* Each fills *out on success. The config's path is there; defaults are the format's to fill in. */
enum status data_open_synth(struct dataset **out, const struct data_config *config);
enum status data_open_idx(struct dataset **out, const struct data_config *config);
enum status data_open_cifar(struct dataset **out, const struct data_config *config);
enum status data_open_folder(struct dataset **out, const struct data_config *config);
enum status data_open_text(struct dataset **out, const struct data_config *config);

/* Sets h, w, c, raw_h and raw_w of pictures that are native_h x native_w in the files. Sides are checked. */
enum status source_set_picture(struct data_spec *spec, const struct data_config *config, int native_h,
                               int native_w, int channels);

#endif
