/* The table of the driver, for tests that fill it in with functions of their own. */
#include "interpose/driver/driver.h"

atomic_bool driver_bound = true;
struct driver_table driver_entries;

struct driver_table *driver_bind_now(void)
{
    return &driver_entries;
}
