/* transcript: what the CUDA driver answers, step by step, in words that do not differ from machine to
 * machine.
 *
 * The output is compared: the driver against the driver under libgpucap.so, and simgpu against the real
 * driver (golden/driver.txt). runner.h has the rules and the options. Exit status 77 when there is no driver.
 * Owns no lock.
 */
#include "tx.h"

static const struct runner_section sections[] = {
#define X(name, what) {#name, tx_run_##name, what},
    TX_SECTIONS(X)
#undef X
};

static bool open_driver(bool by_dlsym)
{
    return driver_open(by_dlsym ? DRIVER_BY_DLSYM : DRIVER_BY_PROCADDR);
}

static int ipc_child(const char *handle)
{
    tx_section("ipc child");
    return tx_ipc_child(handle);
}

int main(int argc, char **argv)
{
    const struct runner r = {
        .sections = sections,
        .count = sizeof(sections) / sizeof(sections[0]),
        .open = open_driver,
        .child = ipc_child,
    };
    return runner_main(argc, argv, &r);
}
