/* prog_bare_nvml: an NVML that says when it is loaded. It has none of NVML's names, so it serves for nothing
 * and each thread that wants it loads it anew. */
#include <string.h>
#include <unistd.h>

__attribute__((constructor)) static void begin(void)
{
    static const char text[] = "loaded\n";
    ssize_t ignored = write(STDOUT_FILENO, text, strlen(text));

    (void)ignored;
}
