/* A library that gets between a program and gpucap: it defines a name that gpucap hooks, and one that only
 * looks like it.
 */
int cuMemAlloc_v2(void);
int cuMemAlloc_v2(void)
{
    return 0;
}

int cudnnCreate(void);
int cudnnCreate(void)
{
    return 0;
}
