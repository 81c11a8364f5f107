/* driver: runs a fuzz entry point without libFuzzer, so that every build exercises it: each file of a corpus
 * folder, then a fixed number of mutations of them. The mutations come from a fixed seed, so a failure
 * repeats: the driver prints the run's number and leaves the input in the file gpucap-fuzz-input.
 *
 *     driver CORPUS_FOLDER [RUNS]
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"

#define INPUT_MAX    8192
#define CORPUS_MAX   256
#define DEFAULT_RUNS 20000
#define SEED         0x9e3779b97f4a7c15u
#define REPEAT_MAX   64 /* bytes of the input's beginning that are repeated in it */
#define STEPS_MAX    6  /* mutations on top of each other */

struct input {
    unsigned char bytes[INPUT_MAX];
    size_t count;
};

static struct input corpus[CORPUS_MAX];
static size_t corpus_count;
static struct input current; /* what is being tried, for the report */
static uint64_t state = SEED;

static uint64_t random_number(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static size_t below(size_t limit)
{
    return limit ? (size_t)(random_number() % limit) : 0;
}

static void load_file(const char *folder, const char *name)
{
    char path[PATH_MAX];
    struct input *input = &corpus[corpus_count];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (!file) {
        perror(path);
        exit(2);
    }
    input->count = fread(input->bytes, 1, INPUT_MAX, file);
    fclose(file);
    corpus_count++;
}

static int not_hidden(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* In the order of their names, so that every machine makes the same mutations. */
static void load_corpus(const char *folder)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, not_hidden, alphasort);
    if (count <= 0) {
        fprintf(stderr, "%s: no corpus\n", folder);
        exit(2);
    }
    for (int i = 0; i < count; i++) {
        if (corpus_count < CORPUS_MAX)
            load_file(folder, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
}

static void insert(struct input *input, size_t at, const void *bytes, size_t count)
{
    if (count > INPUT_MAX - input->count)
        return;
    memmove(input->bytes + at + count, input->bytes + at, input->count - at);
    memcpy(input->bytes + at, bytes, count);
    input->count += count;
}

static void delete (struct input *input, size_t at, size_t count)
{
    memmove(input->bytes + at, input->bytes + at + count, input->count - at - count);
    input->count -= count;
}

static void mutate(struct input *input)
{
    static const char *const tokens[] = {"=",    ",",   ";", "x",    "%",
                                         "\n",   "#",   "G", "KiB",  "none",
                                         "GPU-", "max", "0", "9",    "18446744073709551615",
                                         "-1",   ".",   " ", "\xff", "*",
                                         ":",    "@"};
    static struct input copy;
    const struct input *other = &corpus[below(corpus_count)];
    size_t at = below(input->count + 1);
    size_t token = below(sizeof(tokens) / sizeof(tokens[0]));
    size_t from = below(other->count);
    switch (below(6)) {
    case 0:
        if (at < input->count)
            input->bytes[at] ^= (unsigned char)(1u << below(8));
        break;
    case 1:
        if (at < input->count)
            input->bytes[at] = (unsigned char)random_number();
        break;
    case 2:
        insert(input, at, tokens[token], strlen(tokens[token]));
        break;
    case 3:
        delete (input, at, below(input->count - at + 1));
        break;
    case 4:
        insert(input, at, other->bytes + from, below(other->count - from + 1));
        break;
    default:
        copy = *input;
        insert(input, at, copy.bytes, below(copy.count + 1) % REPEAT_MAX);
        break;
    }
}

/* The bytes in a block of exactly their size, so that a sanitizer sees a read past the end. */
static void try_current(void)
{
    unsigned char *bytes = malloc(current.count ? current.count : 1);
    if (!bytes)
        abort();
    memcpy(bytes, current.bytes, current.count);
    LLVMFuzzerTestOneInput(bytes, current.count);
    free(bytes);
}

static void leave_input(int number)
{
    int fd = open("gpucap-fuzz-input", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd >= 0 && write(fd, current.bytes, current.count) == (ssize_t)current.count)
        close(fd);
    signal(number, SIG_DFL);
    raise(number);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s CORPUS_FOLDER [RUNS]\n", argv[0]);
        return 2;
    }
    long runs = argc > 2 ? atol(argv[2]) : DEFAULT_RUNS;
    signal(SIGABRT, leave_input);
    load_corpus(argv[1]);
    for (size_t i = 0; i < corpus_count; i++) {
        current = corpus[i];
        try_current();
    }
    for (long run = 0; run < runs; run++) {
        current = corpus[below(corpus_count)];
        for (size_t steps = 1 + below(STEPS_MAX); steps; steps--)
            mutate(&current);
        try_current();
    }
    printf("%zu files and %ld mutations tried\n", corpus_count, runs);
    return 0;
}
