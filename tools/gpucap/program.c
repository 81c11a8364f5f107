/* program: see program.h. */
#include "tools/gpucap/program.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OWN_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OWN_MACHINE EM_AARCH64
#else
#error "gpucap runs on x86_64 and aarch64"
#endif

#define SEGMENTS_MAX 128 /* more than any linker writes */
#define SCRIPT_LINE  256 /* as much of a script as the kernel reads */
#define SCRIPTS_MAX  4   /* interpreters that are scripts again, as the kernel has it */

static bool is_program(const char *path)
{
    struct stat st;
    return access(path, X_OK) == 0 && stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static int find_file(const char *name, char *path, size_t size)
{
    const char *folders = getenv("PATH");
    if (strchr(name, '/')) {
        int length = snprintf(path, size, "%s", name);
        if (length < 0 || (size_t)length >= size)
            return -ENAMETOOLONG;
        return is_program(path) ? 0 : -ENOENT;
    }
    while (folders) {
        const char *end = strchrnul(folders, ':');
        int folder_length = (int)(end - folders);
        int length = folder_length ? snprintf(path, size, "%.*s/%s", folder_length, folders, name)
                                   : snprintf(path, size, "./%s", name);
        if (length > 0 && (size_t)length < size && is_program(path))
            return 0;
        folders = *end ? end + 1 : NULL;
    }
    return -ENOENT;
}

/* Reads the interpreter from the first line of a script, as the kernel does. Returns false if it is no
 * script. */
static bool names_interpreter(const char *path, char line[static SCRIPT_LINE], const char **interpreter)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    ssize_t bytes = pread(fd, line, SCRIPT_LINE - 1, 0);
    close(fd);
    line[bytes > 0 ? bytes : 0] = 0;
    if (line[0] != '#' || line[1] != '!')
        return false;
    char *name = line + 2 + strspn(line + 2, " \t");
    name[strcspn(name, " \t\n")] = 0;
    *interpreter = name;
    return *name;
}

int program_find(const char *name, char *path, size_t size)
{
    char line[SCRIPT_LINE];
    const char *interpreter;
    int error = find_file(name, path, size);
    for (int i = 0; !error && i < SCRIPTS_MAX && names_interpreter(path, line, &interpreter); i++) {
        int length = snprintf(path, size, "%s", interpreter);
        error = length < 0 || (size_t)length >= size ? -ENAMETOOLONG : is_program(path) ? 0 : -ENOENT;
    }
    return error;
}

/* Returns true if the kernel would set AT_SECURE on exec. */
static bool is_privileged(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return false;
    if ((st.st_mode & S_ISUID) && st.st_uid != getuid())
        return true;
    if ((st.st_mode & S_ISGID) && (st.st_mode & S_IXGRP) && st.st_gid != getgid())
        return true;
    return getuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0;
}

static enum program_kind look_at_elf(int fd, const Elf64_Ehdr *header)
{
    Elf64_Phdr segments[SEGMENTS_MAX];
    size_t count = header->e_phnum;
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_machine != OWN_MACHINE)
        return PROGRAM_FOREIGN;
    if (header->e_phentsize != sizeof(segments[0]) || count > SEGMENTS_MAX || header->e_phoff > INT64_MAX)
        return PROGRAM_FINE;
    ssize_t bytes = pread(fd, segments, count * sizeof(segments[0]), (off_t)header->e_phoff);
    if (bytes < 0 || (size_t)bytes != count * sizeof(segments[0]))
        return PROGRAM_FINE;
    for (size_t i = 0; i < count; i++) {
        if (segments[i].p_type == PT_INTERP)
            return PROGRAM_FINE;
    }
    return PROGRAM_STATIC;
}

enum program_kind program_look(const char *path)
{
    Elf64_Ehdr header = {0};
    enum program_kind kind = PROGRAM_FINE;
    if (is_privileged(path))
        return PROGRAM_PRIVILEGED;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return PROGRAM_FINE;
    ssize_t bytes = pread(fd, &header, sizeof(header), 0);
    if (bytes == (ssize_t)sizeof(header) && !memcmp(header.e_ident, ELFMAG, SELFMAG))
        kind = look_at_elf(fd, &header);
    close(fd);
    return kind;
}
