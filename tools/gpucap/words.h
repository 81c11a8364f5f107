/* words: formats figures for people. Pure: no state, no locks, no allocation. */
#ifndef GPUCAP_WORDS_H
#define GPUCAP_WORDS_H

#include <stdint.h>

#define WORDS_TEXT      24
#define WORDS_UNLIMITED UINT64_MAX

/* Writes bytes as "5.1 GiB", "147 MiB" or "0"; WORDS_UNLIMITED as "none". Returns text. */
const char *words_size(uint64_t bytes, char text[WORDS_TEXT]);

/* The same in at most six columns, for narrow tables: "5.1G", "147M". */
const char *words_short(uint64_t bytes, char text[WORDS_TEXT]);

/* Writes a duration as "0.4 s", "12 s", "1 m 02 s", "3 h 05 m" or "9 d 23 h". Returns text. */
const char *words_span(uint64_t ms, char text[WORDS_TEXT]);

/* Replaces control characters, bidirectional controls and bytes that are not UTF-8 by question marks: the
 * text comes from other processes and goes to terminals, JSON and Prometheus. */
void words_clean(char *text);

/* Writes UTF-8 text, cut to `most` characters (at most WORDS_CUT_MOST) including "..." if it is longer.
 * Returns text. */
#define WORDS_CUT_MOST 100
#define WORDS_CUT      (4 * WORDS_CUT_MOST + 1)
const char *words_cut(const char *given, int most, char text[WORDS_CUT]);

#endif
