/* fill, CPU reference: out[count] = value. The kernel beside it is fill.cu. */
#include "ops_cpu.h"

void cpu_fill(const struct op_fill *args)
{
    for (size_t i = 0; i < args->count; i++)
        args->out[i] = args->value;
}
