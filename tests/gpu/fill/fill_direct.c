/* fill_direct: fill.h with the driver linked directly (-lcuda): its symbols are bound by the dynamic linker.
 * No lock. */
#include "fill.h"

#include <cuda.h>

#define CU(name) name
#include "fill_driver.h"

int main(int argc, char **argv)
{
    const struct fill_api api = {"driver linked directly", driver_start,    driver_info, driver_alloc,
                                 driver_release,           driver_set,      driver_read, driver_graph_make,
                                 driver_graph_run,         driver_graph_end};
    return fill_main(argc, argv, &api);
}
