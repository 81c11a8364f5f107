# Programs behind `tools/gpu-check --only job`: the processes of a job, on a card.
add_executable(job_race job/job_race.c job/job_race_worker.c job/job_watch.c ${LEDGER_OBJECTS})
target_link_libraries(job_race PRIVATE gpucap_flags gpucap_cuda_headers simgpu_cuda Threads::Threads ${CMAKE_DL_LIBS})
set_target_properties(job_race PROPERTIES SKIP_BUILD_RPATH ON)
runtime_program(job_loan job/job_loan.c)

# The same script on simgpu, shortly. A library with a sanitizer cannot be preloaded by itself.
if(GPUCAP_SANITIZE)
  return()
endif()
add_test(NAME job_check_runs COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/job/job_check.sh ${CMAKE_BINARY_DIR}
  ${CMAKE_CURRENT_BINARY_DIR}/job_check race loans told)
set_tests_properties(job_check_runs PROPERTIES TIMEOUT 300 FAIL_REGULAR_EXPRESSION "FAIL "
  ENVIRONMENT "LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/sim;JOB_ON_SIM=1;JOB_SECONDS=1;JOB_PROCESSES=4;JOB_THREADS=3")
