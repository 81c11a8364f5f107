/* The table of peaks. See card_peak.h. */
#include "harness/base/card_peak.h"

#include <stdio.h>
#include <string.h>

static const double tera = 1e12;

/* TFLOP/s. A word must be one of the name's: "H20" is not in "NVIDIA H200". `form`: another word that the
 * name must have, or NULL; the first row that fits counts. Half precision with sums in float. */
static const struct {
    const char *word, *form;
    double fp32, tf32, half;
    bool no_bf16;
} peaks[] = {
    {"B200", NULL, 75, 1125, 2250, false}, {"H200", "NVL", 60, 417.5, 835.5, false},
    {"H200", NULL, 67, 494.5, 989, false}, {"GH200", NULL, 67, 494.5, 989, false},
    {"H100", "PCIe", 51, 378, 756, false}, {"H100", "NVL", 60, 417.5, 835.5, false},
    {"H100", NULL, 67, 494.5, 989, false}, {"H20", NULL, 44, 74, 148, false},
    {"A100", NULL, 19.5, 156, 312, false}, {"A40", NULL, 37.4, 74.8, 149.7, false},
    {"A30", NULL, 10.3, 82, 165, false},   {"A10", NULL, 31.2, 62.5, 125, false},
    {"L40S", NULL, 91.6, 183, 362, false}, {"L4", NULL, 30.3, 60, 121, false},
    {"T4", NULL, 8.1, 0, 65, true},        {"V100", "SXM2", 15.7, 0, 125, true},
};

/* Returns true if `word` stands in the name between blanks, underscores and hyphens. */
static bool has_word(const char *name, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = name; *at;) {
        size_t here = strcspn(at, " _-");

        if (here == length && strncmp(at, word, length) == 0)
            return true;
        at += here;
        at += strspn(at, " _-");
    }
    return false;
}

double card_peak(const char *name, enum precision precision)
{
    if (has_word(name, "MIG"))
        return 0.0;
    for (size_t i = 0; i < sizeof(peaks) / sizeof(peaks[0]); i++) {
        if (!has_word(name, peaks[i].word) || (peaks[i].form && !has_word(name, peaks[i].form)))
            continue;
        switch (precision) {
        case PRECISION_FP32:
            return tera * peaks[i].fp32;
        case PRECISION_TF32:
            return tera * peaks[i].tf32;
        case PRECISION_BF16:
            return peaks[i].no_bf16 ? 0.0 : tera * peaks[i].half;
        case PRECISION_FP16:
            return tera * peaks[i].half;
        }
    }
    return 0.0;
}

const char *card_peak_words(const char *name, enum precision precision, double flops_per_s, int cards,
                            char text[64])
{
    double peak = card_peak(name, precision) * cards;
    int used = snprintf(text, 64, " tflops=%.2f", flops_per_s / tera);

    if (peak > 0.0 && used > 0 && used < 64)
        snprintf(text + used, 64 - (size_t)used, " mfu=%.4f", flops_per_s / peak);
    return text;
}
