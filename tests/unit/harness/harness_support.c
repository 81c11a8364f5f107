/* harness_support: runs `train` on the simulated GPU for a test. See harness_support.h. */
#include "tests/unit/harness/harness_support.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "unity.h"

enum { MAX_ARGUMENTS = 32, PATH_BYTES = 512 };

struct spawn_result train_said;

void train_forget(void)
{
    spawn_result_free(&train_said);
    memset(&train_said, 0, sizeof(train_said));
}

void train_run_on(const char *card, const char *const *arguments)
{
    struct spawn_env *env = spawn_env_new();
    const char *argv[MAX_ARGUMENTS + 2] = {spawn_build_path("train")};

    for (int i = 0; arguments[i] && i < MAX_ARGUMENTS; i++)
        argv[i + 1] = arguments[i];
    spawn_sim(env, card, NULL);
    train_forget();
    train_said = spawn_run(env, argv, NULL);
    spawn_env_free(env);
}

void train_shell(const char *card, const char *line, double kill_after)
{
    struct spawn_env *env = spawn_env_new();
    struct spawn_options options = {.timeout_s = kill_after};

    spawn_sim(env, card, NULL);
    spawn_env_set(env, "TRAIN", spawn_build_path("train"));
    train_forget();
    train_said = spawn_run(env, (const char *const[]){"/bin/sh", "-c", line, NULL}, &options);
    spawn_env_free(env);
}

const char *train_field(const char *key)
{
    static char value[128];
    size_t length = strlen(key);

    for (const char *at = train_said.out; (at = strstr(at, key)); at++) {
        bool starts = at == train_said.out || at[-1] == ' ' || at[-1] == '\n';

        if (starts && at[length] == '=') {
            snprintf(value, sizeof(value), "%.*s", (int)strcspn(at + length + 1, " \n"), at + length + 1);
            return value;
        }
    }
    TEST_FAIL_MESSAGE(train_said.err);
    return NULL;
}

const char *train_make_folder(void)
{
    static char folder[PATH_BYTES];
    const char *temporary = getenv("TMPDIR");

    snprintf(folder, sizeof(folder), "%s/harness.XXXXXX", temporary ? temporary : "/tmp");
    TEST_ASSERT_NOT_NULL(mkdtemp(folder));
    return folder;
}

void train_remove_folder(const char *folder)
{
    DIR *stream = opendir(folder);
    struct dirent *entry;
    char path[2 * PATH_BYTES];

    TEST_ASSERT_NOT_NULL(stream);
    while ((entry = readdir(stream))) {
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.')
            unlink(path);
    }
    closedir(stream);
    rmdir(folder);
}

void train_name_checkpoint(const char *folder, char path[TRAIN_PATH], char save[TRAIN_OPTION],
                           char resume[TRAIN_OPTION])
{
    snprintf(path, TRAIN_PATH, "%s/run.ckpt", folder);
    snprintf(save, TRAIN_OPTION, "--save=%s", path);
    snprintf(resume, TRAIN_OPTION, "--resume=%s", path);
}

void train_write_file(const char *folder, const char *name, const void *bytes, size_t count)
{
    char path[2 * PATH_BYTES];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "w");
    TEST_ASSERT_NOT_NULL(file);
    TEST_ASSERT_EQUAL_size_t(count, fwrite(bytes, 1, count, file));
    fclose(file);
}

void train_went_well(void)
{
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
}

void train_is_near(double expected, const char *key)
{
    double value = atof(train_field(key));
    char text[128];

    snprintf(text, sizeof(text), "%s is %.9g, expected %.9g", key, value, expected);
    TEST_ASSERT_TRUE_MESSAGE(fabs(value - expected) <= 1e-5 * fabs(expected), text);
}
