/* gpucap.h: what a program that knows of gpucap may ask it. Declared weak: without the library the names are
 * NULL, and a program must check before it calls. */
#ifndef GPUCAP_H
#define GPUCAP_H

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0": the version of the library that is loaded. */
__attribute__((weak)) const char *gpucap_version(void);

#ifdef __cplusplus
}
#endif

#endif
