/* The table of operations that a profile puts in the place of the device's: each entry calls the device's own
 * between profile_begin_operation and profile_end_operation. Made from OPS_LIST, so that no operation is
 * missing. Owns no lock. */
#include "harness/profile/profile_state.h"

#define PROFILE_DEFINE_ENTRY(name)                                                                           \
    static int profile_##name(struct ops *ops, ops_stream stream, const struct op_##name *args)              \
    {                                                                                                        \
        struct profile *profile = (struct profile *)ops;                                                     \
        int error = profile_begin_operation(profile, stream, #name);                                         \
        int ended;                                                                                           \
                                                                                                             \
        if (error)                                                                                           \
            return error;                                                                                    \
        error = profile->inner->name(profile->inner, stream, args);                                          \
        ended = profile_end_operation(profile, stream);                                                      \
        return error ? error : ended;                                                                        \
    }
OPS_LIST(PROFILE_DEFINE_ENTRY)
#undef PROFILE_DEFINE_ENTRY

void profile_watch(struct profile *profile)
{
    if (profile->inner)
        return;
    profile->inner = profile->model->device->ops;
    profile->table = *profile->inner;
#define PROFILE_SET_ENTRY(name) profile->table.name = profile_##name;
    OPS_LIST(PROFILE_SET_ENTRY)
#undef PROFILE_SET_ENTRY
    profile->model->device->ops = &profile->table;
}

void profile_unwatch(struct profile *profile)
{
    if (profile->inner)
        profile->model->device->ops = profile->inner;
    profile->inner = NULL;
}
