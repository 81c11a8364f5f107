/* doctor: what the checks of `gpucap doctor` share: lines of the report, and how many of them tell of
 * trouble. Writes to stdout. Owns no lock. */
#ifndef GPUCAP_DOCTOR_H
#define GPUCAP_DOCTOR_H

struct doctor_report {
    int problems; /* gpucap would not work, or not as asked */
    int warnings; /* it would work, but perhaps not as meant */
};

/* Print a line under a topic. The last two count. */
void doctor_line(const char *topic, const char *format, ...) __attribute__((format(printf, 2, 3)));
void doctor_problem(struct doctor_report *report, const char *topic, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void doctor_warning(struct doctor_report *report, const char *topic, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Checks the folder of the ledgers and each ledger in it. */
void doctor_check_ledger(struct doctor_report *report);

#endif
