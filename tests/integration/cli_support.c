/* cli_support: runs gpucap in a private home and scratch folder. See cli_support.h. */
#include "cli_support.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unity.h"

#define ARGUMENTS_MAX 32
#define FILE_MAX_READ (1 << 20)

static char scratch[PATH_MAX];

void cli_set_up(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(scratch, sizeof(scratch), "%s/gpucap-cli.XXXXXX", base && *base ? base : "/tmp");
    TEST_ASSERT_NOT_NULL_MESSAGE(mkdtemp(scratch), "cannot make a scratch folder");
}

static void remove_tree(const char *folder)
{
    char path[PATH_MAX];
    DIR *dir = opendir(folder);
    if (!dir)
        return;
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        int length = snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (length > 0 && (size_t)length < sizeof(path) && unlink(path) != 0)
            remove_tree(path);
    }
    closedir(dir);
    rmdir(folder);
}

void cli_tear_down(void)
{
    remove_tree(scratch);
}

const char *cli_folder(void)
{
    return scratch;
}

const char *cli_path(const char *name)
{
    static char paths[3][PATH_MAX];
    static int next;
    char *path = paths[next++ % 3];
    int length = snprintf(path, PATH_MAX, "%s/%s", scratch, name);
    TEST_ASSERT_TRUE(length > 0 && length < PATH_MAX);
    return path;
}

void cli_write(const char *path, const void *bytes, size_t count, int mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    TEST_ASSERT_TRUE_MESSAGE(fd >= 0, path);
    TEST_ASSERT_EQUAL_INT((int)count, (int)write(fd, bytes, count));
    TEST_ASSERT_EQUAL_INT(0, fchmod(fd, (mode_t)mode));
    close(fd);
}

void cli_copy(const char *from, const char *to, int mode)
{
    char *bytes = malloc(FILE_MAX_READ);
    FILE *file = fopen(from, "re");
    TEST_ASSERT_NOT_NULL_MESSAGE(file, from);
    size_t count = fread(bytes, 1, FILE_MAX_READ, file);
    TEST_ASSERT_TRUE_MESSAGE(count < FILE_MAX_READ, "the file is too large for this test");
    fclose(file);
    cli_write(to, bytes, count, mode);
    free(bytes);
}

struct spawn_env *cli_env(void)
{
    struct spawn_env *env = spawn_env_new();
    spawn_env_set(env, "HOME", scratch);
    spawn_env_set(env, "GPUCAP_LEDGER", cli_path("ledger"));
    /* Some tests preload a plain library, which then stands before the sanitizer's runtime. Leaks do not
     * matter in a command that ends at once, and looking for them takes seconds on aarch64. */
    spawn_env_set(env, "ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0");
    spawn_env_set(env, "GPUCAP_LIB", spawn_build_path("tests/integration/libcli_quiet.so"));
    return env;
}

/* Of what spawn_wrapped preloads only the sanitizer's runtime, if any. */
struct spawn_env *cli_env_real(void)
{
    struct spawn_env *env = cli_env();
    char runtime[4096];

    spawn_env_unset(env, "GPUCAP_LIB");
    spawn_env_set(env, "GPUCAP_SIM_ID", spawn_sim_id()); /* others of this user may fill their cards */
    spawn_wrapped(env);
    snprintf(runtime, sizeof(runtime), "%s", spawn_env_get(env, "LD_PRELOAD"));
    char *colon = strrchr(runtime, ':');
    if (colon) {
        *colon = '\0';
        spawn_env_set(env, "LD_PRELOAD", runtime);
    } else {
        spawn_env_unset(env, "LD_PRELOAD");
    }
    return env;
}

struct spawn_result cli_run(struct spawn_env *env, const char *const *arguments)
{
    const char *argv[ARGUMENTS_MAX] = {spawn_build_path("gpucap")};
    struct spawn_env *own = env ? NULL : cli_env();
    for (size_t i = 0; arguments[i]; i++) {
        TEST_ASSERT_TRUE(i + 2 < ARGUMENTS_MAX);
        argv[i + 1] = arguments[i];
    }
    struct spawn_result result = spawn_run(env ? env : own, argv, NULL);
    spawn_env_free(own);
    return result;
}

void cli_expect_status(int status, const struct spawn_result *result)
{
    char message[2048];
    snprintf(message, sizeof(message), "stdout: %.900s\nstderr: %.900s", result->out, result->err);
    TEST_ASSERT_EQUAL_INT_MESSAGE(status, result->status, message);
}

static void expect_text(const char *text, const char *where)
{
    char message[4096];
    snprintf(message, sizeof(message), "expected '%.200s' in: %.3500s", text, where);
    TEST_ASSERT_TRUE_MESSAGE(strstr(where, text) != NULL, message);
}

void cli_expect_out(const char *text, const struct spawn_result *result)
{
    expect_text(text, result->out);
}

void cli_expect_err(const char *text, const struct spawn_result *result)
{
    expect_text(text, result->err);
}
