/* prog_bare_nvml: an NVML that says when it is loaded. It has none of NVML's names, so that it is useless and
 * each thread that needs NVML loads it again. */
#include <string.h>
#include <unistd.h>

__attribute__((constructor)) static void begin(void)
{
    static const char text[] = "loaded\n";
    ssize_t ignored = write(STDOUT_FILENO, text, strlen(text));

    (void)ignored;
}
