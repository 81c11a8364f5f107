/* log_fake: log.h for tests. Keeps the lines instead of writing them; each ends with a newline. */
#ifndef GPUCAP_LOG_FAKE_H
#define GPUCAP_LOG_FAKE_H

#define LOG_FAKE_BYTES 4096

extern char log_fake_errors[LOG_FAKE_BYTES], log_fake_infos[LOG_FAKE_BYTES];

void log_fake_clear(void);

#endif
