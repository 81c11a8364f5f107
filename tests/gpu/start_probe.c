/* start_probe: the shortest CUDA program: cudaFree(0). What startup.c times. Exit status: the runtime's code.
 */
#include <cuda_runtime_api.h>

int main(void)
{
    return (int)cudaFree(NULL);
}
