/* doctor_ledger: whether processes can find each other here: the folder of the ledgers, who may use it, and
 * each ledger in it. See doctor.h. */
#include "tools/gpucap/doctor.h"

#include "interpose/settings/options.h"
#include "tools/gpucap/ledgers.h"
#include "tools/gpucap/removed.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define LEDGER_ROOM (UINT64_C(512) << 10) /* a ledger takes a little less */

/* Says what is wrong with the folder; false if nothing in it can be used. */
static bool check_folder(struct doctor_report *report, const char *path)
{
    struct stat folder;

    if (lstat(path, &folder)) {
        doctor_problem(report, "ledger", "the folder %s cannot be looked at: %s", path, strerror(errno));
        return false;
    }
    if (!S_ISDIR(folder.st_mode))
        doctor_problem(report, "ledger", "%s is not a folder", path);
    else if (folder.st_uid != geteuid() && folder.st_uid != 0)
        doctor_problem(report, "ledger", "the folder %s belongs to another user", path);
    else if (folder.st_mode & S_IWOTH)
        doctor_problem(report, "ledger", "everyone may write to the folder %s; chmod o-w helps", path);
    else if (access(path, R_OK | W_OK | X_OK))
        doctor_problem(report, "ledger", "the folder %s cannot be used: %s", path, strerror(errno));
    else {
        if (folder.st_uid == geteuid() && !(folder.st_mode & S_IWGRP) &&
            (folder.st_mode & (S_IRWXG | S_IRWXO)))
            doctor_warning(report, "ledger", "other users may look into the folder %s; chmod 700 helps",
                           path);
        return true;
    }
    return false;
}

/* Small file systems are usual in containers (/dev/shm). */
static void check_room(struct doctor_report *report, const char *path)
{
    struct statvfs room;

    /* One without a limit has 0 blocks. */
    if (statvfs(path, &room) == 0 && room.f_blocks && (uint64_t)room.f_bavail * room.f_frsize < LEDGER_ROOM)
        doctor_problem(report, "ledger",
                       "%s has no room for a card's ledger (512 KiB): name another folder by GPUCAP_LEDGER",
                       path);
}

/* The folder is not there yet: can the first program make it? */
static void check_absent_folder(struct doctor_report *report, const char *path)
{
    char parent[LEDGER_PATH];

    snprintf(parent, sizeof(parent), "%s", path);
    char *slash = strrchr(parent, '/');
    if (slash)
        slash[slash == parent] = 0;
    if (slash && access(parent, W_OK | X_OK))
        doctor_problem(report, "ledger", "the folder %s cannot be made: %s: %s", path, parent,
                       strerror(errno));
    else
        doctor_line("ledger", "%s: none yet; the first program under gpucap makes it", path);
    if (slash)
        check_room(report, parent);
}

static void check_card_ledgers(struct doctor_report *report, const char *path)
{
    struct ledgers ledgers;

    if (ledgers_open(&ledgers, "doctor", path, NULL)) {
        report->problems++;
        return;
    }
    ledgers_read(&ledgers);
    doctor_line("ledger", "%s: %d card%s", path, ledgers.count, ledgers.count == 1 ? "" : "s");
    for (int i = 0; i < ledgers.count; i++) {
        const struct ledgers_card *card = &ledgers.cards[i];
        if (card->ledger)
            doctor_line("ledger", "%s: %d process%s", card->uuid, card->count, card->count == 1 ? "" : "es");
        else
            doctor_problem(report, "ledger", "%s", card->why);
    }
    if (!ledgers.count)
        check_room(report, path);
    ledgers_close(&ledgers);
}

static void report_removed(pid_t pid, void *report)
{
    doctor_problem(report, "ledger",
                   "the ledger of process %ld was removed: its job's max does not hold for it and later "
                   "processes together",
                   (long)pid);
}

void doctor_check_ledger(struct doctor_report *report)
{
    struct options options;
    char path[LEDGER_PATH], error[OPTIONS_ERROR_MAX];

    if (options_load_here(&options, error))
        return; /* check_settings has named it */
    if (!strcmp(options.ledger, "off")) {
        doctor_line("ledger", "off: max holds for each process alone, and ps, set, trim and why see nothing");
        return;
    }
    if (ledger_folder(options.ledger, path, sizeof(path))) {
        doctor_problem(report, "ledger", "the path of its folder is too long");
        return;
    }
    if (access(path, F_OK) && errno == ENOENT)
        check_absent_folder(report, path);
    else if (check_folder(report, path))
        check_card_ledgers(report, path);
    removed_each(path, report_removed, report);
    if (!*options.ledger && (!access("/.dockerenv", F_OK) || !access("/run/.containerenv", F_OK)))
        doctor_line("ledger",
                    "this is a container: to share a budget with programs outside, mount one folder into "
                    "both and name it by GPUCAP_LEDGER");
}
