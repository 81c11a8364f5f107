# Pooled memory under whole programs on simgpu: it looks like the driver's own, no program
# waits for it that would not natively, and other processes can open it. The programs
# check themselves and are also run natively; tools/gpu-check runs them on a real card, so they take the libcuda.so.1
# that they find. Included by CMakeLists.txt of this folder.
set(pointers_programs "")
foreach(name prog_pointers prog_waits prog_captures prog_room prog_frameworks prog_ipc prog_closes prog_stopped prog_job)
  add_executable(${name} ${name}.c ${PROG_CHECK})
  target_link_libraries(${name} PRIVATE gpucap_flags gpucap_cuda_headers Threads::Threads ${CMAKE_DL_LIBS} simgpu_cuda)
  set_target_properties(${name} PROPERTIES SKIP_BUILD_RPATH ON)
  list(APPEND pointers_programs ${name})
endforeach()
# Two that lie to the library, in its own words: as exporters and as importers.
foreach(name prog_forger prog_intruder)
  add_executable(${name} ${name}.c ${PROG_CHECK} ${CMAKE_SOURCE_DIR}/interpose/share/ipc_wire.c ${CMAKE_SOURCE_DIR}/interpose/share/ipc_page.c)
  target_link_libraries(${name} PRIVATE gpucap_flags gpucap_cuda_headers Threads::Threads ${CMAKE_DL_LIBS} simgpu_cuda)
  set_target_properties(${name} PROPERTIES ENABLE_EXPORTS ON) # poll() of prog_clock.c
  list(APPEND pointers_programs ${name})
endforeach()

foreach(name pointers waits captures room frameworks pointers_ipc)
  gpucap_test(${name} LIBS test_support SOURCES ${name}.c)
  add_dependencies(${name} ${pointers_programs} gpucap_library simgpu_cuda simgpu_nvml)
endforeach()
gpucap_test(job LIBS cli_support SOURCES job.c)
add_dependencies(job prog_job fill_dl gpucap_library gpucap_command simgpu_cuda simgpu_nvml)
gpucap_test(ceiling LIBS cli_support SOURCES ceiling.c)
add_dependencies(ceiling prog_job gpucap_library gpucap_command simgpu_cuda simgpu_nvml)
if(TARGET prog_walk)
  target_compile_definitions(ceiling PRIVATE HAS_WALK)
  add_dependencies(ceiling prog_walk)
endif()
# The one that waits is entered into the ledger by the program itself.
add_executable(prog_wakes prog_wakes.c ${PROG_CHECK} ${LEDGER_OBJECTS})
target_link_libraries(prog_wakes PRIVATE gpucap_flags gpucap_cuda_headers Threads::Threads ${CMAKE_DL_LIBS} simgpu_cuda)
set_target_properties(prog_wakes PROPERTIES SKIP_BUILD_RPATH ON)
gpucap_test(wakes LIBS cli_support SOURCES wakes.c)
add_dependencies(wakes prog_wakes gpucap_library simgpu_cuda simgpu_nvml)
# Python is not built with a sanitizer.
if(NOT GPUCAP_SANITIZE)
  gpucap_test(nudge_python LIBS cli_support SOURCES nudge_python.c)
  target_compile_definitions(nudge_python PRIVATE NUDGE_TORCH="${CMAKE_CURRENT_SOURCE_DIR}/nudge_torch.py")
  add_dependencies(nudge_python gpucap_library simgpu_cuda simgpu_nvml)
  gpucap_test(launch LIBS cli_support SOURCES launch.c)
  target_compile_definitions(launch PRIVATE LAUNCH_WORKERS="${CMAKE_CURRENT_SOURCE_DIR}/launch_workers.py")
  add_dependencies(launch gpucap_library gpucap_command simgpu_cuda simgpu_nvml)
endif()

# The transcripts of tests/gpu over the pool (transcript.cmake has them without it).
gpucap_test(pointers_transcript ONE_THREAD TIMEOUT 1200 LIBS transcript_support SOURCES pointers_transcript.c)
add_dependencies(pointers_transcript transcript transcript_rt_shared gpucap_library simgpu_cuda simgpu_cudart simgpu_nvml)

add_executable(prog_lend prog_lend.c ${PROG_CHECK})
target_link_libraries(prog_lend PRIVATE gpucap_flags gpucap_cuda_headers Threads::Threads ${CMAKE_DL_LIBS} simgpu_cuda)
set_target_properties(prog_lend PROPERTIES SKIP_BUILD_RPATH ON)
add_dependencies(job prog_lend)
