/* Configuration files: read or refused with a sentence, and an administrator's ceiling holds after any user
 * file.
 */
#include "fuzz.h"
#include "interpose/settings/options.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    const uint64_t total = (uint64_t)16 << 30;
    const uint64_t ceiling = (uint64_t)2 << 30;
    char error[OPTIONS_ERROR_MAX] = "";
    char *text = fuzz_text(bytes, count);
    struct options *options = malloc(sizeof(*options));
    if (!options)
        abort();
    options_init(options);
    FUZZ_PROMISE(options_parse_file(options, "max = 2G\n", "admin", OPTIONS_ADMIN, error) == 0);
    if (options_parse_file(options, text, "user", OPTIONS_USER, error) != 0) {
        FUZZ_PROMISE(*error && strnlen(error, sizeof(error)) < sizeof(error));
    }
    FUZZ_PROMISE(options_limit(options, 0, "GPU-0", total) <= ceiling);
    options_init(options);
    *error = 0;
    FUZZ_PROMISE(options_parse_file(options, text, "admin", OPTIONS_ADMIN, error) == 0 || *error);
    free(options);
    free(text);
    return 0;
}
