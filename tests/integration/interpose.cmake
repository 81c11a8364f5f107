# libgpucap.so under whole programs on simgpu. The programs (prog_*.c) know nothing of gpucap. Included by CMakeLists.txt
# of this folder.
find_package(Threads REQUIRED)
set(interpose_programs "")

# interpose_program(NAME [SOURCES file...] [LIBS lib...] [DEFINES name...]): a program that a test runs.
function(interpose_program name)
  cmake_parse_arguments(P "" "" "SOURCES;LIBS;DEFINES" ${ARGN})
  add_executable(${name} ${P_SOURCES})
  target_link_libraries(${name} PRIVATE gpucap_flags gpucap_cuda_headers Threads::Threads ${CMAKE_DL_LIBS} ${P_LIBS})
  target_compile_definitions(${name} PRIVATE ${P_DEFINES})
  set(interpose_programs ${interpose_programs} ${name} PARENT_SCOPE)
endfunction()

interpose_program(prog_steps SOURCES prog_steps.c prog_driver.c)
interpose_program(prog_steps_direct SOURCES prog_steps.c prog_driver.c LIBS simgpu_cuda DEFINES PROG_DIRECT)
interpose_program(prog_runtime_shared SOURCES prog_runtime.c LIBS simgpu_cudart)
interpose_program(prog_runtime_static SOURCES prog_runtime.c LIBS simgpu_cudart_static)
interpose_program(prog_process SOURCES prog_process.c prog_driver.c)
interpose_program(prog_process_direct SOURCES prog_process.c prog_driver.c LIBS simgpu_cuda DEFINES PROG_DIRECT)
# So that the library finds their clock_gettime and pthread_create.
set_target_properties(prog_process prog_process_direct PROPERTIES ENABLE_EXPORTS ON)
interpose_program(prog_host SOURCES prog_host.c prog_driver.c)
interpose_program(prog_host_malloc SOURCES prog_host.c prog_driver.c DEFINES PROG_OWN_MALLOC)
interpose_program(prog_race SOURCES prog_race.c prog_driver.c)
interpose_program(prog_odd SOURCES prog_odd.c prog_driver.c)
interpose_program(prog_reopen SOURCES prog_reopen.c)
# Linked, so that its threads' variables are not the dynamic loader's to free, which ThreadSanitizer takes for a race.
interpose_program(prog_start SOURCES prog_start.c prog_driver.c LIBS simgpu_cuda DEFINES PROG_DIRECT)
interpose_program(prog_uuid SOURCES prog_uuid.c)
interpose_program(prog_stderr SOURCES prog_stderr.c prog_driver.c)
interpose_program(prog_leaves SOURCES prog_leaves.c prog_driver.c)
set_target_properties(prog_leaves PROPERTIES ENABLE_EXPORTS ON)

interpose_program(prog_lookup SOURCES prog_lookup.c)

# Loads plugins past us. It is found by a plugin's file name only, by its own RUNPATH; the library finds its mprotect.
interpose_program(prog_deep SOURCES prog_deep.c ${PROG_CHECK} LIBS simgpu_cuda)
# They take the libcuda.so.1 that they find: tools/gpu-check runs them on a real card.
set_target_properties(prog_deep PROPERTIES ENABLE_EXPORTS ON SKIP_BUILD_RPATH ON)
target_link_options(prog_deep PRIVATE -Wl,-rpath,${CMAKE_CURRENT_BINARY_DIR})
foreach(kind lazy now runtime)
  add_library(prog_deep_${kind} SHARED prog_deep_plugin.c)
  target_link_libraries(prog_deep_${kind} PRIVATE gpucap_flags gpucap_cuda_headers)
  set_target_properties(prog_deep_${kind} PROPERTIES SKIP_BUILD_RPATH ON)
  list(APPEND interpose_programs prog_deep_${kind})
endforeach()
target_link_libraries(prog_deep_lazy PRIVATE simgpu_cuda)
target_link_options(prog_deep_lazy PRIVATE -Wl,-z,lazy)
target_link_libraries(prog_deep_now PRIVATE simgpu_cuda)
target_link_options(prog_deep_now PRIVATE -Wl,-z,now -Wl,-z,relro)
target_link_libraries(prog_deep_runtime PRIVATE simgpu_cudart_static ${CMAKE_DL_LIBS})
target_compile_definitions(prog_deep_runtime PRIVATE PLUGIN_RUNTIME)

# Libraries that such programs load, or that are preloaded beside ours.
foreach(name prog_plugin prog_rival prog_early prog_bare_nvml)
  add_library(${name} SHARED ${name}.c)
  target_link_libraries(${name} PRIVATE gpucap_flags gpucap_cuda_headers ${CMAKE_DL_LIBS})
  list(APPEND interpose_programs ${name})
endforeach()
target_link_libraries(prog_plugin PRIVATE simgpu_cuda)
set_target_properties(prog_bare_nvml PROPERTIES PREFIX "" OUTPUT_NAME libnvidia-ml SUFFIX .so.1
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/bare)

add_library(interpose_support STATIC interpose_support.c)
target_link_libraries(interpose_support PUBLIC test_support unity PRIVATE gpucap_flags)

foreach(name interpose_cap interpose_lookup interpose_fault interpose_process interpose_footprint interpose_edge
    interpose_stderr interpose_deep)
  gpucap_test(${name} LIBS interpose_support SOURCES ${name}.c)
  add_dependencies(${name} ${interpose_programs} gpucap_library simgpu_cuda simgpu_cudart simgpu_nvml)
endforeach()
