# Tests of the command line. Included by CMakeLists.txt of this folder.
add_library(cli_quiet SHARED cli_quiet.c)
add_library(cli_rival SHARED cli_rival.c)

add_library(cli_support STATIC cli_support.c)
target_link_libraries(cli_support PUBLIC test_support gpucap_cli unity)

foreach(name cli_run cli_text cli_parts cli_capped)
  gpucap_test(${name} SOURCES ${name}.c LIBS cli_support)
  add_dependencies(${name} gpucap_command gpucap_library cli_quiet cli_rival)
endforeach()
add_dependencies(cli_capped fill_dl simgpu_cuda simgpu_nvml)

# Tests of the commands that read recordings.
gpucap_test(cli_recording SOURCES cli_recording.c LIBS cli_support test_recordings)
add_dependencies(cli_recording gpucap_command gpucap_library cli_quiet simgpu_cuda simgpu_nvml prog_recorded)

gpucap_test(cli_recording_said SOURCES cli_recording_said.c LIBS cli_support test_recordings)
add_dependencies(cli_recording_said gpucap_command)

# Tests of the commands that read and change ledgers, on processes that only join one.
find_package(Threads REQUIRED)
add_executable(prog_member prog_member.c ${LEDGER_OBJECTS})
target_link_libraries(prog_member PRIVATE gpucap_flags Threads::Threads)

add_library(cli_members STATIC cli_members.c)
target_link_libraries(cli_members PUBLIC cli_support)
# ThreadSanitizer of gcc 12 at times holds a signal back: then gpucap top, which has one thread, misses a resize.
gpucap_test(cli_top ONE_THREAD SOURCES cli_top.c cli_screen.c LIBS cli_members cli_support)
foreach(name cli_doctor cli_ledger cli_why cli_steer cli_words)
  gpucap_test(${name} SOURCES ${name}.c LIBS cli_members cli_support)
endforeach()
foreach(name cli_doctor cli_ledger cli_why cli_steer cli_words cli_top)
  add_dependencies(${name} gpucap_command gpucap_library cli_quiet cli_rival prog_member simgpu_cuda simgpu_nvml)
endforeach()
if(TARGET gpucap_json)
  target_link_libraries(cli_ledger PRIVATE ${gpucap_json_library}) # reads what ps writes
endif()

# The walk of docs/walk.md, on simulated cards, with the command as users have it.
if(NOT GPUCAP_SANITIZE AND TARGET gpucap_table AND TARGET gpucap_top)
  add_executable(prog_walk prog_walk.c)
  target_link_libraries(prog_walk PRIVATE gpucap_flags gpucap_cuda_headers simgpu_cuda)
  set_target_properties(prog_walk PROPERTIES SKIP_BUILD_RPATH ON)
  foreach(name cli_capped cli_ledger cli_why)
    target_compile_definitions(${name} PRIVATE HAS_WALK)
    add_dependencies(${name} prog_walk)
  endforeach()
  gpucap_test(walk SOURCES walk.c cli_screen.c LIBS cli_support)
  target_compile_definitions(walk PRIVATE GPUCAP_SOURCE="${CMAKE_SOURCE_DIR}")
  add_dependencies(walk gpucap_command gpucap_library simgpu_cuda simgpu_nvml prog_walk gpucap_table gpucap_top)
endif()
