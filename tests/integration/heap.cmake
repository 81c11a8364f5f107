# The library's private heap beside those of host programs, on simgpu. Included by CMakeLists.txt of this folder.
function(heap_program name)
  add_executable(${name} prog_small.c ${PROG_CHECK})
  target_link_libraries(${name} PRIVATE gpucap_flags gpucap_cuda_headers Threads::Threads ${CMAKE_DL_LIBS} simgpu_cuda ${ARGN})
  set_target_properties(${name} PROPERTIES ENABLE_EXPORTS ON) # so that the library would find its readlink and its malloc
endfunction()
heap_program(prog_small)
gpucap_test(heap_isolation LIBS test_support SOURCES heap_isolation.c)
add_dependencies(heap_isolation prog_small gpucap_library simgpu_cuda simgpu_nvml)

# A sanitizer has a malloc of its own.
if(TARGET jemalloc_pic AND NOT GPUCAP_SANITIZE)
  heap_program(prog_small_jemalloc jemalloc_pic m ${CMAKE_DL_LIBS})
  target_compile_definitions(prog_small_jemalloc PRIVATE PROG_JEMALLOC)
  target_compile_definitions(heap_isolation PRIVATE GPUCAP_TEST_JEMALLOC)
  add_dependencies(heap_isolation prog_small_jemalloc)
endif()
