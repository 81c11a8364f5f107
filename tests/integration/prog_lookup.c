/* prog_lookup: looks names up in every way a program can, and prints in which library it found each, and the
 * dlerror after it. prog_lookup STEP..., a step is "how:name" or "how:name:version" or "load:file". Knows
 * nothing of gpucap. */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

/* The dlsym that programs built before glibc 2.34 ask for. */
#if defined(__aarch64__)
__asm__(".symver old_dlsym, dlsym@GLIBC_2.17");
#else
__asm__(".symver old_dlsym, dlsym@GLIBC_2.2.5");
#endif
void *old_dlsym(void *handle, const char *name);

#define HANDLES_MAX 8

/* What a loaded library may do for us, with its own address as the caller's. */
static void *handles[HANDLES_MAX]; /* in the order of the load steps */
static int loaded;

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static void say(const char *step, const char *name, void *found)
{
    const char *error = dlerror();
    const char *where = "nowhere";
    Dl_info info;

    if (found)
        where = dladdr(found, &info) && info.dli_fname ? base_name(info.dli_fname) : "somewhere";
    printf("%s %s: %s%s%s\n", step, name, where, error ? " error: " : "", error ? error : "");
}

static void load(const char *file, int mode)
{
    if (loaded < HANDLES_MAX)
        handles[loaded++] = dlopen(file, mode);
    if (!handles[loaded - 1])
        printf("load %s: %s\n", file, dlerror());
}

static void load_apart(const char *file)
{
    if (!dlmopen(LM_ID_NEWLM, file, RTLD_NOW))
        printf("apart %s: %s\n", file, dlerror());
}

typedef void *asker(void *handle, const char *name);

/* Lets the library that was loaded last ask, by one of its functions. */
static void *ask_by(const char *function, void *handle, const char *name)
{
    asker *ask = (asker *)dlsym(handles[loaded - 1], function);

    return ask ? ask(handle, name) : NULL;
}

static void *ask_there(void *handle, const char *name)
{
    return ask_by("plugin_ask", handle, name);
}

/* Calls an entry point of the library that was loaded last, such as cuInit. */
static void call(const char *name)
{
    int (*entry)(unsigned) = (int (*)(unsigned))dlsym(handles[loaded - 1], name);

    printf("call %s %d\n", name, entry ? entry(0) : -1);
}

/* Asks for the newest version of an entry point, as libcudart does. */
static void ask_driver(const char *step, const char *name)
{
    int (*get)(const char *, void **, int, unsigned long long, int *) =
        (int (*)(const char *, void **, int, unsigned long long, int *))dlsym(handles[loaded - 1],
                                                                              "cuGetProcAddress_v2");
    void *found = NULL;
    int status;

    if (get)
        get(name, &found, 13000, 0, &status);
    say(step, name, found);
}

static void run(char *step)
{
    char *name = strchr(step, ':'), *version;

    if (!name)
        return;
    *name++ = '\0';
    version = strchr(name, ':');
    if (version)
        *version++ = '\0';
    if (!strcmp(step, "error")) { /* what the last step has left */
        const char *error = dlerror();

        printf("%s\n", error ? error : "no error");
        return;
    }
    if (strcmp(step, "deep"))
        dlerror();
    if (!strcmp(step, "load"))
        load(name, RTLD_NOW | RTLD_LOCAL);
    else if (!strcmp(step, "deep"))
        load(name, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    else if (!strcmp(step, "apart"))
        load_apart(name);
    else if (!strcmp(step, "missing"))
        (void)dlsym(RTLD_DEFAULT, name); /* its error is not read */
    else if (!strcmp(step, "global"))
        load(name, RTLD_NOW | RTLD_GLOBAL);
    else if (!strcmp(step, "default"))
        say(step, name, version ? dlvsym(RTLD_DEFAULT, name, version) : dlsym(RTLD_DEFAULT, name));
    else if (!strcmp(step, "next"))
        say(step, name, version ? dlvsym(RTLD_NEXT, name, version) : dlsym(RTLD_NEXT, name));
    else if (!strcmp(step, "self"))
        say(step, name, dlsym(dlopen(NULL, RTLD_NOW), name));
    else if (!strcmp(step, "in"))
        say(step, name,
            version ? dlvsym(handles[loaded - 1], name, version) : dlsym(handles[loaded - 1], name));
    else if (!strcmp(step, "old"))
        say(step, name, old_dlsym(loaded ? handles[loaded - 1] : RTLD_NEXT, name));
    else if (!strcmp(step, "plugin-default"))
        say(step, name, ask_there(RTLD_DEFAULT, name));
    else if (!strcmp(step, "plugin-next"))
        say(step, name, ask_there(RTLD_NEXT, name));
    else if (!strcmp(step, "plugin-stale"))
        say(step, name, ask_by("plugin_ask_after_failure", RTLD_NEXT, name));
    else if (!strcmp(step, "call"))
        call(name);
    else if (!strcmp(step, "proc"))
        ask_driver(step, name);
    else
        printf("%s: no such step\n", step);
}

int main(int argc, char **argv)
{
    for (int i = 2; i < argc; i++)
        run(argv[i]);
    return 0;
}
