/* interpose_elfslot_part: an object with slots: a call, and an address in its data. */
#include <unistd.h>

pid_t part_call(void);
pid_t part_by_address(void);
extern pid_t (*part_address)(void);

pid_t (*part_address)(void) = getppid;

pid_t part_call(void)
{
    return getppid();
}

pid_t part_by_address(void)
{
    return part_address();
}
