/* options: see options.h. Reads files and the environment, never writes either. */
#include "interpose/settings/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interpose/base/files.h"
#include "interpose/base/sums.h"
#include "interpose/settings/people.h"

#define NEEDS_UUID "an administrator's limit names a device by its UUID (nvidia-smi -L shows it)"

const struct options_entry options_table[OPTIONS_COUNT] = {
#define X(id, name, variable, standard, form, help) {name, variable, standard, form, help},
    OPTIONS_TABLE(X)
#undef X
};

int options_find(const char *name, size_t length)
{
    for (int id = 0; id < OPTIONS_COUNT; id++) {
        if (strlen(options_table[id].name) == length && !memcmp(options_table[id].name, name, length))
            return id;
    }
    return -1;
}

static int refuse(const char **why, const char *reason)
{
    *why = reason;
    return -EINVAL;
}

static int set_max(struct options *options, const char *value, enum options_source source, const char **why)
{
    struct rules limits;

    if (rules_parse(value, &limits, why))
        return -EINVAL;
    if (source == OPTIONS_ADMIN) {
        /* A user can renumber devices with CUDA_VISIBLE_DEVICES; a ceiling must not move with that. */
        if (rules_use_ordinals(&limits))
            return refuse(why, NEEDS_UUID);
        options->ceiling = limits;
    }
    options->max = limits;
    return 0;
}

static int set_reserve(struct options *options, const char *value, const char **why)
{
    const int rc = size_parse(value, strlen(value), &options->reserve);

    return rc ? refuse(why, size_why(rc)) : 0;
}

/* Returns the index of a value among the names, or -EINVAL. */
static int choose(const char *value, const char *const *names, const char **why)
{
    for (int i = 0; names[i]; i++) {
        if (!strcmp(value, names[i]))
            return i;
    }
    return refuse(why, "unknown word");
}

static int set_choice(bool *out, const char *value, const char *off, const char *on, const char **why)
{
    int choice = choose(value, (const char *const[]){off, on, NULL}, why);

    if (choice >= 0)
        *out = choice;
    return choice < 0 ? choice : 0;
}

static int set_log(struct options *options, const char *value, const char **why)
{
    int choice = choose(value, (const char *const[]){"quiet", "error", "info", NULL}, why);

    if (choice >= 0)
        options->log = (enum options_log)choice;
    return choice < 0 ? choice : 0;
}

static int set_percent(struct size_value *out, const char *value, const char **why)
{
    struct size_value percent;

    if (size_parse(value, strlen(value), &percent) || !percent.is_percent)
        return refuse(why, "not between 0.1% and 100%");
    *out = percent;
    return 0;
}

/* Parses seconds, with or without an "s" after them; `off` is the result for "off". */
static int set_seconds(double *out, const char *value, double off, const char **why)
{
    double seconds = 0, unit = 1;
    size_t i = 0;

    if (!strcmp(value, "off")) {
        *out = off;
        return 0;
    }
    for (; value[i] >= '0' && value[i] <= '9' && i < 6; i++)
        seconds = seconds * 10 + (value[i] - '0');
    const size_t whole = i;
    if (whole && value[i] == '.')
        i++;
    for (; i > whole && value[i] >= '0' && value[i] <= '9' && unit > 0.001; i++)
        seconds += (value[i] - '0') * (unit /= 10);
    const bool ends_well = whole && value[i - 1] != '.' && (!value[i] || !strcmp(value + i, "s"));
    if (!ends_well)
        return refuse(why, "not a number of seconds");
    *out = seconds;
    return 0;
}

static int set_rules(struct rules *out, const char *value,
                     int (*parse)(const char *text, struct rules *out, const char **why), const char **why)
{
    struct rules limits;
    const int rc = parse(value, &limits, why);

    if (rc == 0)
        *out = limits;
    return rc;
}

static int set_group(struct options *options, const char *value, const char **why)
{
    const size_t length = strlen(value);

    if (!strcmp(value, "none")) {
        options->group[0] = '\0';
        return 0;
    }
    for (size_t i = 0; i < length; i++) {
        const char c = value[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("._-", c)))
            return refuse(why, "names cannot have one of its characters");
    }
    if (length == 0 || length >= sizeof(options->group))
        return refuse(why, "a name has 1 to 63 characters");
    memcpy(options->group, value, length + 1);
    return 0;
}

static int set_ledger(struct options *options, const char *value, const char **why)
{
    const bool is_auto = !strcmp(value, "auto");

    if (!is_auto && strcmp(value, "off") != 0 && *value != '/')
        return refuse(why, "not the path of a folder from the root");
    if (strlen(value) >= sizeof(options->ledger))
        return refuse(why, "the path is too long");
    strcpy(options->ledger, is_auto ? "" : value);
    return 0;
}

static int set_record(struct options *options, const char *value, const char **why)
{
    const bool off = !strcmp(value, "off");

    for (const char *percent = strchr(value, '%'); percent; percent = strchr(percent + 2, '%')) {
        if (!percent[1] || !strchr("ph%", percent[1]))
            return refuse(why, "only p, h or % may follow a %");
    }
    if (!*value || strlen(value) >= sizeof(options->record))
        return refuse(why, *value ? "the path is too long" : "the name is empty");
    strcpy(options->record, off ? "" : value);
    return 0;
}

/* Parses and sets a value. Writes only the reason to *why; the callers know where the value came from. */
static int parse_value(struct options *options, int id, const char *value, enum options_source source,
                       const char **why)
{
    if (strlen(value) > OPTIONS_VALUE_MAX)
        return refuse(why, "the value is too long");
    switch ((enum options_id)id) {
    case OPTIONS_MAX:
        return set_max(options, value, source, why);
    case OPTIONS_EACH:
        return set_rules(&options->each, value, rules_parse, why);
    case OPTIONS_MIN:
        return set_rules(&options->min, value, rules_parse_bound, why);
    case OPTIONS_HIGH:
        return set_rules(&options->high, value, rules_parse_bound, why);
    case OPTIONS_GROUP:
        return set_group(options, value, why);
    case OPTIONS_LEDGER:
        return set_ledger(options, value, why);
    case OPTIONS_WAIT:
        return set_seconds(&options->wait, value, 0, why);
    case OPTIONS_RESERVE:
        return set_reserve(options, value, why);
    case OPTIONS_POOL:
        return set_choice(&options->pool, value, "off", "on", why);
    case OPTIONS_FREE:
        return set_choice(&options->deferred, value, "strict", "deferred", why);
    case OPTIONS_SLACK:
        return set_percent(&options->slack, value, why);
    case OPTIONS_DECAY:
        return set_seconds(&options->decay, value, -1, why);
    case OPTIONS_EARLY:
        return set_percent(&options->early, value, why);
    case OPTIONS_ZERO:
        return set_choice(&options->zero, value, "off", "on", why);
    case OPTIONS_GUARD:
        return set_choice(&options->guard, value, "off", "on", why);
    case OPTIONS_FILL:
        return set_choice(&options->fill, value, "off", "on", why);
    case OPTIONS_RECORD:
        return set_record(options, value, why);
    case OPTIONS_STACKS:
        return set_choice(&options->stacks, value, "off", "on", why);
    case OPTIONS_NVTX:
        return set_choice(&options->nvtx, value, "off", "on", why);
    case OPTIONS_NUDGE:
        return set_choice(&options->nudge, value, "off", "on", why);
    case OPTIONS_LOG:
        return set_log(options, value, why);
    case OPTIONS_COUNT:
        break;
    }
    return refuse(why, "no such option");
}

static int set_value(struct options *options, int id, const char *value, enum options_source source,
                     const char **why)
{
    const int rc = parse_value(options, id, value, source, why);

    if (rc == 0)
        options->source[id] = source;
    return rc;
}

/* `where` is NULL for an option of the command line. */
static int bad_value(const char *where, int id, const char *value, const char *why,
                     char error[OPTIONS_ERROR_MAX])
{
    snprintf(error, OPTIONS_ERROR_MAX, "%s%s%s='%.100s' is not valid (%s); accepted: %s", where ? where : "",
             where ? ": " : "--", options_table[id].name, value, why, options_table[id].form);
    return -EINVAL;
}

int options_set(struct options *options, int id, const char *value, enum options_source source,
                char error[OPTIONS_ERROR_MAX])
{
    const char *why = "";

    if (set_value(options, id, value, source, &why))
        return bad_value(source == OPTIONS_ENVIRONMENT ? options_table[id].variable : NULL, id, value, why,
                         error);
    return 0;
}

void options_init(struct options *options)
{
    const char *why;

    memset(options, 0, sizeof(*options));
    for (int id = 0; id < OPTIONS_COUNT; id++)
        set_value(options, id, options_table[id].standard, OPTIONS_DEFAULT, &why);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* For whom a section of the administrator's file is, the most exact last. */
enum section { SECTION_NOT_OURS, SECTION_ALL, SECTION_GROUP, SECTION_USER };

/* A file that is being parsed. */
struct file {
    const char *name;
    enum options_source source;
    int line;               /* number of the current line */
    int set[OPTIONS_COUNT]; /* the line of this section that has set an option; 0: none */
    enum section section;
    enum section max_from; /* the section whose max applies so far */
};

/* Parses "[user NAME]" or "[group NAME]". */
static int parse_section(const char *line, size_t length, struct file *file, const char *where,
                         char error[OPTIONS_ERROR_MAX])
{
    char text[80], kind[8], name[64];
    int end = -1, ours = 0;

    memset(file->set, 0, sizeof(file->set));
    file->section = SECTION_NOT_OURS;
    snprintf(text, sizeof(text), "%.*s", (int)(length < sizeof(text) ? length : sizeof(text)), line);
    if (file->source != OPTIONS_ADMIN || sscanf(text, "[%7[a-z] %63[^] \t]]%n", kind, name, &end) != 2 ||
        end != (int)length || (strcmp(kind, "user") != 0 && strcmp(kind, "group") != 0)) {
        snprintf(error, OPTIONS_ERROR_MAX,
                 "%s: '%.*s' is no section; accepted, in " OPTIONS_ADMIN_FILE
                 ": [user NAME] and [group NAME]",
                 where, (int)(length < 60 ? length : 60), line);
        return -EINVAL;
    }
    if (!people_may_exist(name)) {
        snprintf(error, OPTIONS_ERROR_MAX, "%s: no %s can have the number %s; accepted: 0 to %u", where, kind,
                 name, UINT32_MAX - 1);
        return -EINVAL;
    }
    if (!strcmp(kind, "user") && people_is_user(name))
        file->section = SECTION_USER;
    if (!strcmp(kind, "group") && (ours = people_is_in_group(name)) > 0)
        file->section = SECTION_GROUP;
    if (ours < 0)
        snprintf(error, OPTIONS_ERROR_MAX, "%s: the groups of this process cannot be listed: %s", where,
                 strerror(-ours));
    return ours < 0 ? -EINVAL : 0;
}

/* Sets an option of a file. In a section there is only max; that of the most exact section applies. */
static int set_from_file(struct options *options, int id, const char *value, struct file *file,
                         const char **why)
{
    struct rules unused;

    if (file->section == SECTION_ALL && id != OPTIONS_MAX)
        return set_value(options, id, value, file->source, why);
    if (id != OPTIONS_MAX)
        return refuse(why, "a section sets only max");
    if (file->section <= file->max_from && file->section != SECTION_ALL) {
        if (rules_parse(value, &unused, why))
            return -EINVAL;
        return rules_use_ordinals(&unused) ? refuse(why, NEEDS_UUID) : 0;
    }
    file->max_from = file->section;
    return set_value(options, id, value, file->source, why);
}

/* Takes the blanks off both ends of a text. */
static void trim(const char **text, size_t *length)
{
    for (; *length && is_blank(**text); ++*text)
        --*length;
    while (*length && is_blank((*text)[*length - 1]))
        --*length;
}

/* Finds the option that "name = value" sets, for the first time in this section. Returns it, or -EINVAL. */
static int find_for_line(const char *name, size_t length, bool has_value, struct file *file,
                         const char *where, char error[OPTIONS_ERROR_MAX])
{
    const int id = options_find(name, length);

    if (id < 0 || !has_value) {
        snprintf(error, OPTIONS_ERROR_MAX, "%s: '%.*s' %s; accepted: lines of the form name = value", where,
                 (int)(length < 60 ? length : 60), name, id < 0 ? "is not an option" : "has no value");
        return -EINVAL;
    }
    if (file->set[id]) {
        snprintf(error, OPTIONS_ERROR_MAX, "%s: %s is set a second time (first in line %d)", where,
                 options_table[id].name, file->set[id]);
        return -EINVAL;
    }
    file->set[id] = file->line;
    return id;
}

/* Parses one line without its newline: blank, a comment, a section, or "name = value". */
static int parse_line(struct options *options, const char *line, size_t length, struct file *file,
                      char error[OPTIONS_ERROR_MAX])
{
    char value[OPTIONS_VALUE_MAX + 2], where[128];
    const char *comment = memchr(line, '#', length), *why = "";

    snprintf(where, sizeof(where), "%.100s:%d", file->name, file->line);
    length = comment ? (size_t)(comment - line) : length;
    trim(&line, &length);
    if (length == 0)
        return 0;
    if (*line == '[')
        return parse_section(line, length, file, where, error);
    const char *equals = memchr(line, '=', length), *text = equals ? equals + 1 : line + length;
    size_t name_length = equals ? (size_t)(equals - line) : length,
           text_length = length - (size_t)(text - line);
    trim(&line, &name_length);
    trim(&text, &text_length);
    const int id = find_for_line(line, name_length, equals, file, where, error);
    if (id < 0)
        return id;
    snprintf(value, sizeof(value), "%.*s", (int)sums_smaller(text_length, OPTIONS_VALUE_MAX + 1), text);
    return set_from_file(options, id, value, file, &why) ? bad_value(where, id, value, why, error) : 0;
}

int options_parse_file(struct options *options, const char *text, const char *name,
                       enum options_source source, char error[OPTIONS_ERROR_MAX])
{
    struct file file = {.name = name, .source = source, .section = SECTION_ALL};

    while (*text) {
        size_t length = strcspn(text, "\n");

        file.line++;
        if (parse_line(options, text, length, &file, error))
            return -EINVAL;
        text += length + (text[length] == '\n');
    }
    return 0;
}

static int load_file(struct options *options, const char *path, enum options_source source,
                     char error[OPTIONS_ERROR_MAX])
{
    char *text = malloc(OPTIONS_FILE_MAX + 1);
    int rc = -EINVAL;

    if (!text) {
        snprintf(error, OPTIONS_ERROR_MAX, "%s: no memory to read it", path);
        return -EINVAL;
    }
    ssize_t length = files_read(path, text, OPTIONS_FILE_MAX);
    length = length == OPTIONS_FILE_MAX ? -EFBIG : length;
    if (length == -ENOENT || length == -ENOTDIR || (length == -EACCES && source == OPTIONS_USER)) {
        rc = 0;
    } else if (length < 0) {
        snprintf(error, OPTIONS_ERROR_MAX, "%s cannot be read: %s", path, strerror((int)-length));
    } else if (memchr(text, '\0', (size_t)length)) {
        snprintf(error, OPTIONS_ERROR_MAX, "%s is not a text file", path);
    } else {
        text[length] = '\0';
        rc = options_parse_file(options, text, path, source, error);
    }
    free(text);
    return rc;
}

/* Rejects an unknown GPUCAP_ variable: a mistyped limit would not be enforced. */
static int check_variable(const char *entry, char error[OPTIONS_ERROR_MAX])
{
    /* Variables of the tools, the tests and the simulated GPU. */
    static const char *const others[] = {"SIM", "LIB", "BUILD", "CHECK_", "TEST_", "ROOT"};
    const size_t prefix = strlen("GPUCAP_"), length = strcspn(entry, "=");

    if (strncmp(entry, "GPUCAP_", prefix) != 0)
        return 0;
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        if (!strncmp(entry + prefix, others[i], strlen(others[i])))
            return 0;
    }
    for (int id = 0; id < OPTIONS_COUNT; id++) {
        if (strlen(options_table[id].variable) == length &&
            !strncmp(entry, options_table[id].variable, length))
            return 0;
    }
    snprintf(error, OPTIONS_ERROR_MAX, "%.*s: gpucap has no such variable (`gpucap help run` lists them)",
             (int)(length < 60 ? length : 60), entry);
    return -EINVAL;
}

/* Returns true if no card can have so small a limit that the reserve leaves nothing of it. Only sizes in the
 * same unit can be compared before the cards are known. */
static bool leaves_room(const struct size_value *reserve, const struct rules *limits)
{
    for (int i = 0; i < limits->count; i++) {
        const struct rules_rule *rule = &limits->rules[i];

        if (!rule->unlimited && !rule->size.is_percent && reserve->bytes >= rule->size.bytes)
            return false;
    }
    return true;
}

static int check_reserve(const struct options *options, char error[OPTIONS_ERROR_MAX])
{
    const struct size_value *reserve = &options->reserve;

    if (options->source[OPTIONS_RESERVE] == OPTIONS_DEFAULT ||
        (reserve->is_percent ? reserve->permille < 1000
                             : leaves_room(reserve, &options->max) && leaves_room(reserve, &options->each) &&
                                   leaves_room(reserve, &options->ceiling)))
        return 0;
    snprintf(error, OPTIONS_ERROR_MAX,
             "reserve leaves nothing of a limit: it must be less than max and each (the default is %s)",
             options_table[OPTIONS_RESERVE].standard);
    return -EINVAL;
}

int options_load(struct options *options, const struct options_places *places, char error[OPTIONS_ERROR_MAX])
{
    options_init(options);
    for (char *const *entry = places->variables; entry && *entry; entry++) {
        if (check_variable(*entry, error))
            return -EINVAL;
    }
    if (places->admin_file && load_file(options, places->admin_file, OPTIONS_ADMIN, error))
        return -EINVAL;
    if (places->user_file && load_file(options, places->user_file, OPTIONS_USER, error))
        return -EINVAL;
    for (int id = 0; id < OPTIONS_COUNT; id++) {
        const char *value = places->getenv(options_table[id].variable);

        if (value && options_set(options, id, value, OPTIONS_ENVIRONMENT, error))
            return -EINVAL;
    }
    return check_reserve(options, error);
}

static const char *real_getenv(const char *variable)
{
    return getenv(variable);
}

struct options_places options_places_here(char path[OPTIONS_PATH_MAX])
{
    struct options_places places = {
        .getenv = real_getenv, .admin_file = OPTIONS_ADMIN_FILE, .variables = environ};
    const char *home = getenv("HOME");

    if (home && *home && strlen(home) + sizeof(OPTIONS_USER_FILE) + 1 <= OPTIONS_PATH_MAX) {
        snprintf(path, OPTIONS_PATH_MAX, "%s/%s", home, OPTIONS_USER_FILE);
        places.user_file = path;
    }
    return places;
}

int options_load_here(struct options *options, char error[OPTIONS_ERROR_MAX])
{
    char path[OPTIONS_PATH_MAX];
    const struct options_places places = options_places_here(path);

    return options_load(options, &places, error);
}

uint64_t options_limit(const struct options *options, int ordinal, const char *uuid, uint64_t total)
{
    const uint64_t max = rules_for(&options->max, ordinal, uuid, total);
    const uint64_t each = rules_for(&options->each, ordinal, uuid, total);
    const uint64_t ceiling = rules_for(&options->ceiling, ordinal, uuid, total);

    return sums_smaller(sums_smaller(max, each), ceiling);
}

uint64_t options_own_limit(const struct options *options, int ordinal, const char *uuid, uint64_t total)
{
    if (!options->group[0])
        return options_limit(options, ordinal, uuid, total);
    const uint64_t each = rules_for(&options->each, ordinal, uuid, total);
    return sums_smaller(sums_smaller(each, rules_for(&options->ceiling, ordinal, uuid, total)), total);
}

uint64_t options_job_limit(const struct options *options, int ordinal, const char *uuid, uint64_t total)
{
    const uint64_t max = rules_for(&options->max, ordinal, uuid, total);

    return sums_smaller(sums_smaller(max, rules_for(&options->ceiling, ordinal, uuid, total)), total);
}

static bool limits_anything(const struct rules *limits)
{
    for (int i = 0; i < limits->count; i++) {
        if (!limits->rules[i].unlimited)
            return true;
    }
    return false;
}

bool options_any_limit(const struct options *options)
{
    return limits_anything(&options->max) || limits_anything(&options->each) ||
           limits_anything(&options->ceiling) || limits_anything(&options->min) ||
           limits_anything(&options->high) || options->group[0];
}
