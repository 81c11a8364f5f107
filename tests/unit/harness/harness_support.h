/* Runs `train` on the simulated GPU for a test and reads its result line. */
#ifndef TESTS_UNIT_HARNESS_SUPPORT_H
#define TESTS_UNIT_HARNESS_SUPPORT_H

#include "spawn.h"

enum {
    TRAIN_FAILED = 1,
    TRAIN_USAGE = 2,
    TRAIN_NO_MEMORY = 3,
    TRAIN_NOT_FINITE = 4,
    TRAIN_STOPPED = 5,
    TRAIN_UNSAVED = 6
};

enum { TRAIN_PATH = 600, TRAIN_OPTION = 700 }; /* bytes of a path, and of an option with one */

/* What the last run said; freed by the next one and by train_forget. */
extern struct spawn_result train_said;

/* Runs train with the arguments (ended by NULL) on a simulated card of that size. */
void train_run_on(const char *card, const char *const *arguments);
void train_forget(void);

/* The same through a shell line in which $TRAIN is the program, killed after some seconds if that is not 0.
 */
void train_shell(const char *card, const char *line, double kill_after);

#define TRAIN(card, ...) train_run_on(card, (const char *const[]){__VA_ARGS__, NULL})

/* The value of key in the first result line that has it, in a static buffer; fails the test if none has. */
const char *train_field(const char *key);

/* Fail the test unless the last run ended well, or the value is about as expected. */
void train_went_well(void);
void train_is_near(double expected, const char *key);

/* A folder of the test's own, removed with all its files by train_remove_folder. */
const char *train_make_folder(void);
void train_remove_folder(const char *folder);
/* Names a checkpoint in the folder: its path, and the options that save to it and resume from it. */
void train_name_checkpoint(const char *folder, char path[TRAIN_PATH], char save[TRAIN_OPTION],
                           char resume[TRAIN_OPTION]);
void train_write_file(const char *folder, const char *name, const void *bytes, size_t count);

#endif
