/* The version of the library as data, built into libgpucap.so: `gpucap doctor` reads it from the file,
 * without loading the library and so without running it.
 */
extern const char gpucap_version_text[];
__attribute__((visibility("default"))) const char gpucap_version_text[] = GPUCAP_VERSION;
