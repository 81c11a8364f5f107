# The simulated runtime on the simulated driver. The runtime is found where it was built; the driver, as always, in
# LD_LIBRARY_PATH.
function(cudart_test name runtime)
  gpucap_test(${name} LIBS gpucap_cuda_headers ${runtime} Threads::Threads SOURCES ${ARGN})
  add_dependencies(${name} simgpu_cuda)
endfunction()
find_package(Threads REQUIRED)

cudart_test(cudart_memory simgpu_cudart cudart_memory.c)
cudart_test(cudart_memory_static simgpu_cudart_static cudart_memory.c)
cudart_test(cudart_no_device simgpu_cudart_static cudart_no_device.c)
foreach(subject copies streams)
  cudart_test(cudart_${subject} simgpu_cudart cudart_${subject}.c)
  cudart_test(cudart_${subject}_per_thread simgpu_cudart cudart_${subject}.c)
  target_compile_definitions(cudart_${subject}_per_thread PRIVATE CUDA_API_PER_THREAD_DEFAULT_STREAM)
endforeach()

# The driver finds a kernel's host function with dlsym(), so that the program must export it.
cudart_test(cudart_kernels simgpu_cudart cudart_kernels.c)
set_target_properties(cudart_kernels PROPERTIES ENABLE_EXPORTS ON)
