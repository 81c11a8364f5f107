# Tests of the command line. Included by CMakeLists.txt of this folder.
add_library(cli_quiet SHARED cli_quiet.c)
add_library(cli_rival SHARED cli_rival.c)

add_library(cli_support STATIC cli_support.c)
target_link_libraries(cli_support PUBLIC test_support gpucap_cli unity)

foreach(name cli_run cli_text cli_parts cli_doctor cli_capped)
  gpucap_test(${name} SOURCES ${name}.c LIBS cli_support)
  add_dependencies(${name} gpucap_command gpucap_library cli_quiet cli_rival)
endforeach()
