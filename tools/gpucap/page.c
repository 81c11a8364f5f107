/* page: see page.h. */
#include "tools/gpucap/page.h"

#include "tools/gpucap/page_bytes.h"

/* The files of the folder page/, each ended by a zero byte: page_assets.S. */
extern const char page_style[], page_body[], page_code[];

/* Nothing is loaded from anywhere, whatever a recording's texts say. */
#define POLICY "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"

static void write_head(FILE *out, const struct recording_set *set)
{
    fputs("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"" POLICY "\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
          out);
    page_text(out, recording_set_title(set, 0));
    fputs(" - GPU memory</title>\n<style>\n", out);
    fputs(page_style, out);
    fputs("</style>\n</head>\n", out);
}

bool page_write(FILE *out, const struct recording_set *set)
{
    bool good = true;

    write_head(out, set);
    fputs(page_body, out);
    for (int i = 0; i < set->track_count && good; i++)
        good = page_track_write(out, set, &set->tracks[i]);
    fputs("<script>\n'use strict';\n", out);
    fputs(page_code, out);
    fputs("</script>\n</body>\n</html>\n", out);
    return good;
}
