/* bench_data: how many samples a second the data pipeline makes, by source, by where pictures are prepared
 * and by the number of workers. Without --data it makes a folder of JPEG files of a photograph's size for
 * itself. Prints one line of key=value for each. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench_jpeg.h"
#include "harness/data/pipeline.h"

enum { FILES = 64, CLASSES = 2, PHOTO_H = 375, PHOTO_W = 500, PATH_BYTES = 300 };

static const char usage[] =
    "usage: bench_data [--seconds=S] [--image=N] [--batch=N] [--workers=N] [--data=PATH | --make=PATH]\n"
    "  --seconds=S  for each measurement (1)\n"
    "  --image=N    side of the pictures that a model would see (224)\n"
    "  --batch=N    samples of a batch (64)\n"
    "  --workers=N  most threads (one per processor); measured at 1, 2, 4, ...\n"
    "  --data=PATH  pictures to read in place of generated ones\n"
    "  --make=PATH  only write the generated pictures into this folder, for train --data\n";

struct settings {
    double seconds;
    int image, workers;
    size_t batch;
    const char *data, *make;
};

struct subject {
    struct data_config data;
    size_t cache;
};

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int fail(const char *what)
{
    fprintf(stderr, "bench_data: %s\n", what);
    return 1;
}

/* Samples a second, after the buffers were full once. */
static int run(struct pipeline *pipeline, double seconds, double *rate)
{
    struct pipeline_stats stats;
    struct batch *batch;
    size_t samples = 0;
    double start;

    pipeline_get_stats(pipeline, &stats);
    for (int i = 0; i < stats.slots; i++) {
        if (pipeline_next(pipeline, &batch))
            return 1;
        pipeline_release(pipeline, batch);
    }
    start = now();
    while (now() - start < seconds) {
        if (pipeline_next(pipeline, &batch))
            return 1;
        samples += batch->count;
        pipeline_release(pipeline, batch);
    }
    *rate = (double)samples / (now() - start);
    return 0;
}

static int measure(const struct settings *settings, const struct subject *subject,
                   enum pipeline_prepare prepare, int workers)
{
    struct pipeline_config config = {.batch = settings->batch,
                                     .seed = 1,
                                     .augment = true,
                                     .prepare = prepare,
                                     .shuffle = UINT64_MAX,
                                     .workers = workers,
                                     .cache = subject->cache};
    struct pipeline *pipeline = NULL;
    struct dataset *dataset = NULL;
    double rate = 0.0;
    int failed = dataset_open(&dataset, &subject->data) || pipeline_open(&pipeline, dataset, &config) ||
                 run(pipeline, settings->seconds, &rate);

    if (!failed)
        printf("source=%s%s%s prepare=%s workers=%d samples_per_s=%.0f\n", dataset_format_name(dataset),
               subject->data.kind == DATA_TOKENS ? "_tokens" : "", subject->cache ? "+cache" : "",
               prepare == PREPARE_GPU ? "gpu" : "cpu", workers, rate);
    fflush(stdout);
    pipeline_close(pipeline);
    dataset_close(dataset);
    return failed;
}

static int measure_all(const struct settings *settings, const struct subject *subjects, size_t count)
{
    int failed = 0;

    for (size_t i = 0; i < count && !failed; i++) {
        bool picture = subjects[i].data.kind == DATA_IMAGES;

        for (int prepare = PREPARE_GPU; prepare <= (picture ? PREPARE_CPU : PREPARE_GPU); prepare++) {
            for (int workers = 1; workers <= settings->workers && !failed; workers *= 2)
                failed = measure(settings, &subjects[i], (enum pipeline_prepare)prepare, workers);
        }
    }
    return failed;
}

static int parse(struct settings *settings, int argc, char **argv)
{
    static const struct option options[] = {
        {"seconds", required_argument, NULL, 's'}, {"image", required_argument, NULL, 'i'},
        {"batch", required_argument, NULL, 'b'},   {"workers", required_argument, NULL, 'w'},
        {"data", required_argument, NULL, 'd'},    {"make", required_argument, NULL, 'm'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0}};
    int option;

    *settings = (struct settings){1.0, 224, (int)sysconf(_SC_NPROCESSORS_ONLN), 64, NULL, NULL};
    while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
        switch (option) {
        case 's':
            settings->seconds = strtod(optarg, NULL);
            break;
        case 'i':
            settings->image = (int)strtol(optarg, NULL, 10);
            break;
        case 'b':
            settings->batch = (size_t)strtoul(optarg, NULL, 10);
            break;
        case 'w':
            settings->workers = (int)strtol(optarg, NULL, 10);
            break;
        case 'd':
            settings->data = optarg;
            break;
        case 'm':
            settings->make = optarg;
            break;
        case 'h':
            fputs(usage, stdout);
            exit(0);
        default:
            return -1;
        }
    }
    return optind == argc && settings->seconds > 0 && settings->image > 0 && settings->batch > 0 ? 0 : -1;
}

int main(int argc, char **argv)
{
    struct settings settings;
    char folder[PATH_BYTES] = "";
    int failed;

    if (parse(&settings, argc, argv)) {
        fputs(usage, stderr);
        return 2;
    }
    if (settings.make)
        return bench_jpeg_fill_folder(settings.make, CLASSES, FILES, PHOTO_H, PHOTO_W) ? 1 : 0;
    if (!settings.data && bench_jpeg_make_folder(folder, sizeof(folder), CLASSES, FILES, PHOTO_H, PHOTO_W))
        folder[0] = 0;
    struct subject subjects[] = {
        {{.path = settings.data ? settings.data : folder, .image = settings.image}, 0},
        {{.path = settings.data ? settings.data : folder, .image = settings.image}, 1 << 30},
        {{.kind = DATA_IMAGES, .image = settings.image}, 0},
        {{.kind = DATA_IMAGES, .image = settings.image, .samples = 1024}, 1 << 30},
        {{.kind = DATA_TOKENS, .length = 1024}, 0},
    };
    size_t skip = settings.data || folder[0] ? 0 : 2;

    failed = measure_all(&settings, subjects + skip, sizeof(subjects) / sizeof(subjects[0]) - skip);
    if (folder[0])
        bench_jpeg_remove_folder(folder);
    return failed ? fail("a measurement failed (see above)") : 0;
}
