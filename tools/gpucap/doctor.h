/* doctor: shared by the checks of `gpucap doctor`: the lines of the report, and counts of problems and
 * warnings. Writes to stdout. Owns no lock. */
#ifndef GPUCAP_DOCTOR_H
#define GPUCAP_DOCTOR_H

struct doctor_report {
    int problems; /* a problem: gpucap would not work, or not as requested */
    int warnings; /* a warning: it would work, but perhaps not as intended */
};

/* Print a line under a topic. The last two are counted. */
void doctor_line(const char *topic, const char *format, ...) __attribute__((format(printf, 2, 3)));
void doctor_problem(struct doctor_report *report, const char *topic, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void doctor_warning(struct doctor_report *report, const char *topic, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Checks the folder of the ledgers and each ledger in it. */
void doctor_check_ledger(struct doctor_report *report);

#endif
