/* prog_deep: what prog_deep_plugin offers. Results are the driver's, as numbers. */
#ifndef TESTS_INTEGRATION_PROG_DEEP_H
#define TESTS_INTEGRATION_PROG_DEEP_H

#include <stddef.h>

/* Loads another plugin with RTLD_DEEPBIND. */
void *plugin_load(const char *file);
/* Allocates and keeps. */
int plugin_take(size_t bytes);
/* Writes, a while later, on a stream of the plugin's own. */
int plugin_write(unsigned long long block, unsigned char byte, size_t bytes);
/* Waits for that stream. */
int plugin_finish(void);

#endif
