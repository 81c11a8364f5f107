/* Names of layers and passes for people. A layer with parameters has PyTorch's name (names.h); one without,
 * or with parameters of a layer before it, is the output or is called by its type and how many of that type
 * came before. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/profile/profile_state.h"

const char *profile_pass_name(enum model_pass pass)
{
    static const char *const names[PASS_COUNT] = {"input",    "forward", "repeat",
                                                  "backward", "average", "update"};

    return names[pass];
}

const char *profile_layer_name(const struct profile *profile, int layer)
{
    return layer == NO_VALUE || !profile->names ? "" : profile->names[layer];
}

/* Returns true if a layer before this one has its first parameter too. */
static bool is_tied(const struct model *model, int layer)
{
    for (int l = 0; l < layer; l++)
        for (int i = 0; i < LAYER_PARAMS; i++)
            if (model->layers[l].param[i] == model->layers[layer].param[0])
                return true;
    return false;
}

/* transformer.h.0.attn.c_attn.weight -> h.0.attn.c_attn */
static void take_module(const char *param, char *name)
{
    static const char first[] = "transformer.";
    const char *from = strncmp(param, first, strlen(first)) == 0 ? param + strlen(first) : param;
    const char *dot = strrchr(from, '.');

    snprintf(name, PROFILE_NAME_BYTES, "%.*s", dot ? (int)(dot - from) : (int)strlen(from), from);
}

static void name_layer(const struct profile *profile, const struct names_entry *params, int layer)
{
    const struct model *model = profile->model;
    const struct layer *it = &model->layers[layer];
    int before = 0;

    if (it->param[0] != NO_VALUE && !is_tied(model, layer)) {
        take_module(params[it->param[0]].name, profile->names[layer]);
        return;
    }
    if (it->out[0] == model->output) {
        snprintf(profile->names[layer], PROFILE_NAME_BYTES, "output");
        return;
    }
    for (int l = 0; l < layer; l++)
        before += model->layers[l].type == it->type;
    snprintf(profile->names[layer], PROFILE_NAME_BYTES, "%s.%d", it->type->name, before);
}

enum status profile_make_names(struct profile *profile)
{
    const struct model *model = profile->model;
    struct names_entry *params = calloc((size_t)model->param_count + 1, sizeof(*params));
    enum status status;

    free(profile->names);
    profile->names = calloc((size_t)model->layer_count + 1, sizeof(*profile->names));
    if (!params || !profile->names) {
        free(params);
        return status_fail(STATUS_NO_MEMORY, "no host memory for the profile");
    }
    status = names_make(model, profile->options, params);
    for (int l = 0; l < model->layer_count && !status; l++)
        name_layer(profile, params, l);
    if (!status)
        snprintf(profile->names[model->layer_count], PROFILE_NAME_BYTES, "loss");
    free(params);
    return status;
}
