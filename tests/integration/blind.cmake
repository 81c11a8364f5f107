# Caps that hold where little is known of the card, and others that hold in every way, under whole programs on simgpu.
# The programs check themselves, and compare with the simulated card's own books. Included by CMakeLists.txt of this
# folder.
foreach(name blind limits rare)
  add_executable(prog_${name} prog_${name}.c ${PROG_CHECK})
  target_link_libraries(prog_${name} PRIVATE gpucap_flags gpucap_cuda_headers Threads::Threads ${CMAKE_DL_LIBS} simgpu_cuda)
  # So that the library finds their readlink, and simgpu their kernels; tools/gpu-check runs one on a real card.
  set_target_properties(prog_${name} PROPERTIES ENABLE_EXPORTS ON SKIP_BUILD_RPATH ON)

  gpucap_test(${name} LIBS test_support SOURCES ${name}.c)
  add_dependencies(${name} prog_${name} gpucap_library simgpu_cuda simgpu_nvml)
endforeach()
