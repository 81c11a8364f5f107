# One set of warnings and sanitizer flags for all our code, and one way to declare a test.
add_library(gpucap_flags INTERFACE)
target_compile_definitions(gpucap_flags INTERFACE _GNU_SOURCE)
target_compile_options(gpucap_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
  -Wwrite-strings -Wundef -Wvla -fno-strict-aliasing -fno-omit-frame-pointer>)
if(GPUCAP_WERROR)
  target_compile_options(gpucap_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:-Werror>)
endif()
if(GPUCAP_SANITIZE)
  target_compile_options(gpucap_flags INTERFACE -fsanitize=${GPUCAP_SANITIZE} -fno-sanitize-recover=undefined)
  target_link_options(gpucap_flags INTERFACE -fsanitize=${GPUCAP_SANITIZE})
endif()

# gpucap_test(NAME [LABEL label] [TIMEOUT s] [LIBS lib...] [ENV VAR=value...] SOURCES file...)
# builds one Unity test executable and registers it. Exit status 77 means skipped. The test runs with
# GPUCAP_BUILD=<build folder>, so that it finds libgpucap.so, gpucap and sim/.
function(gpucap_test name)
  cmake_parse_arguments(T "" "LABEL;TIMEOUT" "LIBS;ENV;SOURCES" ${ARGN})
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE gpucap_flags unity ${T_LIBS})
  add_test(NAME ${name} COMMAND ${name})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${T_TIMEOUT}
    ENVIRONMENT "GPUCAP_BUILD=${CMAKE_BINARY_DIR};${T_ENV}")
  if(T_LABEL)
    set_tests_properties(${name} PROPERTIES LABELS "${T_LABEL}")
  endif()
endfunction()
