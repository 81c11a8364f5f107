/* A library to preload that does nothing: for the tests of how the command line handles its environment. */
#define QUIET_VERSION "0.0.0"

extern const char gpucap_version_text[];
__attribute__((visibility("default"))) const char gpucap_version_text[] = QUIET_VERSION;
