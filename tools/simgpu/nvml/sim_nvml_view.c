/* sim_nvml_view: how much the simulated NVML shows. See sim_nvml_view.h. */
#include "tools/simgpu/nvml/sim_nvml_view.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_nvml_view current; /* guarded by lock */

/* Reads a number that fills the part and is at most `most`. */
static bool read_number(const char *text, size_t length, unsigned int most, unsigned int *out)
{
    unsigned long long value = 0;
    if (length == 0)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (unsigned)(text[i] - '0');
        if (value > most)
            return false;
    }
    *out = (unsigned)value;
    return true;
}

static bool is(const char *text, size_t length, const char *name)
{
    return length == strlen(name) && !memcmp(text, name, length);
}

/* Reads "name=N". */
static bool is_number(const char *text, size_t length, const char *name, unsigned int most, unsigned int *out)
{
    size_t prefix = strlen(name);
    return length > prefix && !memcmp(text, name, prefix) &&
           read_number(text + prefix, length - prefix, most, out);
}

static bool read_part(const char *text, size_t length, struct sim_nvml_view *view)
{
    if (is(text, length, "absent"))
        view->absent = true;
    else if (is(text, length, "no-list"))
        view->no_list = true;
    else if (is(text, length, "no-bytes"))
        view->no_bytes = true;
    else
        return is_number(text, length, "pids=", SIM_NVML_VIEW_MAX_PIDS, &view->pids) ||
               is_number(text, length, "newcomers=", SIM_NVML_VIEW_MAX_NEWCOMERS, &view->newcomers);
    return true;
}

int sim_nvml_view_parse(const char *text, struct sim_nvml_view *out, char *why, size_t why_size)
{
    struct sim_nvml_view view = {0};
    while (*text) {
        size_t length = strcspn(text, ",");
        if (!read_part(text, length, &view)) {
            snprintf(why, why_size, "\"%.24s\" is none of absent, no-list, no-bytes, pids=N, newcomers=N",
                     text);
            return -EINVAL;
        }
        text += length;
        if (*text == ',' && !*++text) {
            snprintf(why, why_size, "nothing behind the last comma");
            return -EINVAL;
        }
    }
    *out = view;
    return 0;
}

int sim_nvml_view_read(void)
{
    const char *text = getenv("GPUCAP_SIM_NVML");
    struct sim_nvml_view view = {0};
    char why[128];
    if (text && sim_nvml_view_parse(text, &view, why, sizeof(why))) {
        fprintf(stderr, "simgpu: GPUCAP_SIM_NVML: %s\n", why);
        return -EINVAL;
    }
    pthread_mutex_lock(&lock);
    current = view;
    pthread_mutex_unlock(&lock);
    return 0;
}

struct sim_nvml_view sim_nvml_view_now(void)
{
    pthread_mutex_lock(&lock);
    struct sim_nvml_view view = current;
    pthread_mutex_unlock(&lock);
    return view;
}
