# One set of warnings and sanitizer flags for all our code, and one way to declare a test.
add_library(gpucap_flags INTERFACE)
target_compile_definitions(gpucap_flags INTERFACE _GNU_SOURCE)
# Headers are included by their path from the root ("interpose/pool/pool.h").
target_compile_options(gpucap_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:SHELL:-iquote ${CMAKE_SOURCE_DIR}>)
target_compile_options(gpucap_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
  -Wwrite-strings -Wundef -Wvla -fno-strict-aliasing -fno-omit-frame-pointer
  -Werror=implicit-function-declaration -Werror=int-conversion -Werror=incompatible-pointer-types>)
if(GPUCAP_WERROR)
  target_compile_options(gpucap_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:-Werror>)
endif()
if(GPUCAP_SANITIZE)
  target_compile_options(gpucap_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:-fsanitize=${GPUCAP_SANITIZE}
    -fno-sanitize-recover=all>)
  target_link_options(gpucap_flags INTERFACE -fsanitize=${GPUCAP_SANITIZE})
  target_compile_definitions(gpucap_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:GPUCAP_LOCK_CHECK>) # lock.h
endif()

# What every test process runs with. LD_LIBRARY_PATH is set whole, not extended: a toolkit's stub libcuda in
# the caller's path would be found before anything else and answer every call with an error.
# One search for leaks takes over 4 s of processor time on aarch64 (gcc 12's runtime walks its whole region table).
# So it is off in tests that run other programs, which would pay it for each of them, and in tests of the simulated GPU,
# which counts its own objects (simgpu_leaks()).
set(GPUCAP_TESTS_OF_SIM "^simgpu_")
set(GPUCAP_TEST_ENV "GPUCAP_BUILD=${CMAKE_BINARY_DIR}")
set(GPUCAP_TEST_SIM_ENV "LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/sim")
# The simulated machine of a test that makes none itself: tests that run at the same time, also those of another build
# folder, would share the cards of the user's machine.
string(MD5 GPUCAP_TEST_MACHINE "${CMAKE_BINARY_DIR}")
string(SUBSTRING "${GPUCAP_TEST_MACHINE}" 0 8 GPUCAP_TEST_MACHINE)
if(GPUCAP_SANITIZE MATCHES "undefined")
  list(APPEND GPUCAP_TEST_ENV "UBSAN_OPTIONS=print_stacktrace=1")
endif()
if(GPUCAP_SANITIZE MATCHES "thread")
  list(APPEND GPUCAP_TEST_ENV "TSAN_OPTIONS=halt_on_error=1 second_deadlock_stack=1 atexit_sleep_ms=0")
endif()

# gpucap_test(NAME [ONE_THREAD] [LABEL label] [TIMEOUT s] [LIBS lib...] [ENV VAR=value...] SOURCES file...)
# builds one Unity test executable and registers it. Exit status 77 means skipped. The test runs with
# GPUCAP_BUILD=<build folder>, so that it finds libgpucap.so, gpucap and sim/; with LABEL gpu it keeps the
# caller's LD_LIBRARY_PATH, because it wants the real driver. ONE_THREAD leaves it out of the tsan preset: it is slow
# there, and what its threads do, if it has any, other tests do as well.
function(gpucap_test name)
  cmake_parse_arguments(T "ONE_THREAD" "LABEL;TIMEOUT" "LIBS;ENV;SOURCES" ${ARGN})
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE gpucap_flags unity ${T_LIBS})
  if(T_ONE_THREAD AND GPUCAP_SANITIZE MATCHES "thread")
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  add_test(NAME ${name} COMMAND ${name})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 900) # it ends a hang; no test may count on being faster on a slow, busy machine
  endif()
  set(environment ${GPUCAP_TEST_ENV} ${T_ENV})
  if(GPUCAP_SANITIZE MATCHES "address" AND ("${T_LIBS}" MATCHES "support" OR name MATCHES "${GPUCAP_TESTS_OF_SIM}"))
    list(PREPEND environment "ASAN_OPTIONS=detect_leaks=0")
  endif()
  if(NOT T_LABEL STREQUAL "gpu")
    list(PREPEND environment ${GPUCAP_TEST_SIM_ENV} "GPUCAP_SIM_ID=${GPUCAP_TEST_MACHINE}-${name}")
  endif()
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${T_TIMEOUT}
    ENVIRONMENT "${environment}")
  if(T_LABEL)
    set_tests_properties(${name} PROPERTIES LABELS "${T_LABEL}")
  endif()
endfunction()
