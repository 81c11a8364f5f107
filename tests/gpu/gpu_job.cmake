# Programs behind `tools/gpu-check --only job`: the processes of a job, on a card.
set(ACCOUNT ${CMAKE_SOURCE_DIR}/interpose/account)
add_executable(job_race job/job_race.c job/job_race_worker.c job/job_watch.c ${ACCOUNT}/ledger.c ${ACCOUNT}/ledger_ask.c
  ${ACCOUNT}/ledger_open.c ${ACCOUNT}/ledger_read.c)
target_link_libraries(job_race PRIVATE gpucap_flags gpucap_cuda_headers simgpu_cuda Threads::Threads ${CMAKE_DL_LIBS})
set_target_properties(job_race PROPERTIES SKIP_BUILD_RPATH ON)
runtime_program(job_loan job/job_loan.c)
