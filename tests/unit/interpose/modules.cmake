# The modules of libgpucap.so, each alone: only the sources named here are linked, so that a test can stand in for the rest.
find_package(Threads REQUIRED)
add_library(ledger_support OBJECT ledger_support.c)
target_link_libraries(ledger_support PRIVATE gpucap_flags unity)

# interpose_unit(NAME [LEDGER|MEMBERS] MODULES ... FAKES ... WRAP ...): the test NAME.c with these sources of
# interpose/, these fakes (log: log_fake.c), and libc's functions that it replaces by its own __wrap_*. LEDGER: with the
# ledger's sources; MEMBERS: also with ledger_support.c.
function(interpose_unit name)
  cmake_parse_arguments(U "LEDGER;MEMBERS" "" "MODULES;FAKES;WRAP" ${ARGN})
  list(TRANSFORM U_MODULES PREPEND ${CMAKE_SOURCE_DIR}/interpose/)
  list(TRANSFORM U_FAKES APPEND _fake.c)
  list(TRANSFORM U_WRAP PREPEND -Wl,--wrap=)
  if(U_LEDGER OR U_MEMBERS)
    list(APPEND U_MODULES ${LEDGER_OBJECTS})
  endif()
  if(U_MEMBERS)
    list(APPEND U_MODULES $<TARGET_OBJECTS:ledger_support>)
  endif()
  gpucap_test(${name} LIBS gpucap_cuda_headers Threads::Threads ${CMAKE_DL_LIBS} ${U_WRAP}
    SOURCES ${name}.c ${U_MODULES} ${U_FAKES})
endfunction()

interpose_unit(interpose_size MODULES settings/size.c)
interpose_unit(interpose_rules MODULES settings/rules.c settings/size.c)
interpose_unit(interpose_options MODULES settings/options.c settings/people.c settings/rules.c settings/size.c
    WRAP getgroups)
interpose_unit(interpose_people MODULES settings/people.c WRAP fopen fclose getuid getgid getegid getgroups)
interpose_unit(interpose_log MODULES settings/log.c WRAP fstat statx)
interpose_unit(interpose_library MODULES library.c FAKES log WRAP atexit pthread_atfork)
interpose_unit(interpose_limit MODULES account/limit.c)
interpose_unit(interpose_account LEDGER MODULES account/account.c account/limit.c base/lock.c base/process.c
  WRAP pthread_cond_timedwait)
interpose_unit(interpose_account_job MEMBERS MODULES account/account.c account/limit.c base/lock.c base/process.c)
interpose_unit(interpose_blocks MODULES account/blocks.c account/mappings.c WRAP pthread_mutex_lock pthread_mutex_unlock mmap
  munmap)
interpose_unit(interpose_route LEDGER MODULES route.c account/account.c account/blocks.c account/limit.c account/mappings.c
  base/lock.c base/process.c FAKES driver log WRAP mmap)
interpose_unit(interpose_drivers_pools MODULES account/drivers_pools.c base/lock.c base/process.c FAKES driver)
interpose_unit(interpose_lend MEMBERS MODULES lend.c account/account.c account/limit.c base/lock.c base/process.c
  settings/size.c FAKES driver events log)
interpose_unit(interpose_nudge MODULES nudge.c settings/size.c FAKES log)
interpose_unit(interpose_route_pool MODULES route_pool.c base/lock.c base/process.c settings/size.c FAKES driver events log)
interpose_unit(interpose_route_grow MEMBERS MODULES route_grow.c account/account.c account/blocks.c account/known_kernels.c account/limit.c
  base/lock.c base/process.c settings/size.c FAKES driver events log)
interpose_unit(interpose_graphs MODULES account/graphs.c account/limit.c base/lock.c base/process.c WRAP realloc)
interpose_unit(interpose_device MODULES account/device.c base/lock.c base/process.c settings/options.c settings/people.c
  settings/rules.c settings/size.c FAKES driver events log)
interpose_unit(interpose_measure MODULES account/measure.c base/lock.c base/process.c base/thread.c WRAP pthread_cond_timedwait)
interpose_unit(interpose_decay MODULES base/thread.c pool/decay.c FAKES driver)
interpose_unit(interpose_nvml MODULES driver/nvml.c)
interpose_unit(interpose_nvml_told MODULES hook/hook_nvml.c account/limit.c settings/options.c settings/people.c
  settings/rules.c settings/size.c)
interpose_unit(interpose_elfslot MODULES driver/elfslot.c driver/elfsym.c WRAP mprotect)
foreach(kind now lazy)
  add_library(interpose_elfslot_${kind} MODULE interpose_elfslot_part.c)
  target_link_libraries(interpose_elfslot_${kind} PRIVATE gpucap_flags)
  target_link_options(interpose_elfslot_${kind} PRIVATE -Wl,-z,${kind} -Wl,-z,relro)
  add_dependencies(interpose_elfslot interpose_elfslot_${kind})
endforeach()
target_compile_definitions(interpose_elfslot PRIVATE ELFSLOT_NOW="$<TARGET_FILE:interpose_elfslot_now>"
  ELFSLOT_LAZY="$<TARGET_FILE:interpose_elfslot_lazy>")
interpose_unit(interpose_elfsym MODULES driver/elfsym.c WRAP dl_iterate_phdr)
interpose_unit(interpose_resolve MODULES hook/resolve.c FAKES driver WRAP dlopen dlerror)
interpose_unit(interpose_rebind MODULES hook/rebind.c FAKES driver log WRAP dl_iterate_phdr dlinfo dlclose dlerror)
interpose_unit(interpose_driver MODULES driver/driver.c WRAP dladdr dlopen dlclose)
interpose_unit(interpose_hooks_list MODULES hook/hooks.c FAKES driver)
interpose_unit(interpose_hooks_stderr MODULES hook/hook_stderr.c)
interpose_unit(interpose_hooks_nvtx MODULES hook/hook_nvtx.c)
interpose_unit(interpose_capture MODULES pool/capture.c base/lock.c base/process.c FAKES driver)
interpose_unit(interpose_vmm MODULES pool/vmm.c route_fill.c FAKES driver)
interpose_unit(interpose_pools MODULES pool/pools.c base/lock.c base/process.c settings/size.c FAKES driver events log)
interpose_unit(interpose_hooks_memory MODULES hook/hook_memory.c hook/hook_array.c base/lock.c base/process.c
  FAKES driver events hooks)
interpose_unit(interpose_hooks_map MODULES hook/hook_map.c FAKES driver)
interpose_unit(interpose_hooks_pointer MODULES hook/hook_pointer.c hook/hook_ipc.c hook/pointer.c FAKES driver events)
interpose_unit(interpose_hooks_work MODULES hook/hook_work.c hook/memops.c hook/hook_info.c hook/hook_find.c hook/seen.c
  base/lock.c base/process.c FAKES driver events)
interpose_unit(interpose_hooks_context MODULES hook/hook_context.c hook/hook_growth.c account/known_kernels.c base/lock.c base/process.c
  FAKES driver context)
interpose_unit(interpose_api_calls MODULES hook/api.c)
target_compile_definitions(interpose_api_calls PRIVATE GPUCAP_VERSION="test")
interpose_unit(interpose_hooks_graph MODULES hook/hook_graph.c account/graphs.c account/limit.c base/lock.c base/process.c
  FAKES driver log WRAP realloc)
interpose_unit(interpose_inquiry MODULES account/inquiry.c)
interpose_unit(interpose_known_kernels MODULES account/known_kernels.c FAKES driver)
interpose_unit(interpose_refusal MODULES refusal.c account/limit.c settings/options.c settings/people.c settings/rules.c
  settings/size.c FAKES events log WRAP clock_gettime atexit)
interpose_unit(interpose_nvtx MODULES see/nvtx.c see/tags.c)
interpose_unit(interpose_owner MODULES see/events.c see/owner.c see/owner_maps.c see/stacks.c see/tags.c base/lock.c
  base/process.c)
set(recorder_modules see/events.c see/live.c see/owner.c see/owner_maps.c see/recorder.c see/recorder_names.c
  see/recording_write.c see/stacks.c see/tags.c base/lock.c base/process.c base/thread.c settings/log.c settings/size.c)
interpose_unit(interpose_recorder MODULES ${recorder_modules} WRAP pthread_cond_timedwait pthread_create)
interpose_unit(interpose_recorder_files MODULES ${recorder_modules})
foreach(test interpose_recorder interpose_recorder_files)
  target_link_libraries(${test} PRIVATE recording_decode gpucap_zstd)
endforeach()
interpose_unit(interpose_names MODULES see/recorder_names.c)
interpose_unit(interpose_recorded MODULES recorded.c FAKES driver events WRAP atexit)
interpose_unit(interpose_stacks MODULES see/stacks.c base/lock.c base/process.c)
interpose_unit(interpose_events MODULES see/events.c base/lock.c base/process.c WRAP syscall pthread_setspecific)
interpose_unit(interpose_base MODULES base/lock.c base/process.c base/thread.c WRAP pthread_create
  pthread_mutex_timedlock madvise getpid)
interpose_unit(interpose_write MODULES see/recording_write.c)
target_link_libraries(interpose_write PRIVATE gpucap_zstd)
interpose_unit(interpose_ipc_page MODULES share/ipc_page.c)
interpose_unit(interpose_ipc_wire MODULES share/ipc_wire.c WRAP geteuid)
interpose_unit(interpose_ipc_thread MODULES share/ipc_thread.c base/lock.c base/thread.c FAKES log
  WRAP atexit pthread_atfork pthread_timedjoin_np poll)
interpose_unit(interpose_ipc_import MODULES share/ipc_import.c base/lock.c base/process.c FAKES driver)
interpose_unit(interpose_ipc_exports MODULES share/ipc_exports.c base/lock.c base/process.c)
foreach(part "" _peers)
  interpose_unit(interpose_ipc${part} MODULES base/lock.c base/process.c base/thread.c share/ipc.c share/ipc_board.c
    share/ipc_broker.c share/ipc_exports.c share/ipc_page.c share/ipc_source.c share/ipc_thread.c share/ipc_wire.c
    FAKES ipc log WRAP poll)
endforeach()
# A forked child starts the thread again.
set_property(TEST interpose_ipc APPEND PROPERTY ENVIRONMENT "TSAN_OPTIONS=halt_on_error=1 second_deadlock_stack=1 die_after_fork=0")

# The ledger, in several processes.
foreach(part "" _members _card _wait _files _death)
  interpose_unit(interpose_ledger${part} MEMBERS)
endforeach()
target_link_options(interpose_ledger_card PRIVATE -Wl,--wrap=clock_gettime)
target_link_options(interpose_ledger_files PRIVATE -Wl,--wrap=mmap)
target_link_options(interpose_ledger_members PRIVATE -Wl,--wrap=syscall)
target_link_options(interpose_ledger_wait PRIVATE -Wl,--wrap=fcntl)
target_link_options(interpose_ledger_death PRIVATE -Wl,-z,now) # the linker's work is not stepped through

interpose_unit(interpose_live MODULES see/live.c)

# Libraries through which interpose_owner calls. The path of `same` is as long as the test's; that of `more` begins with it.
foreach(name ffi cudart same more samurai)
  add_library(interpose_owner_${name} MODULE interpose_owner_passes.c)
  target_link_libraries(interpose_owner_${name} PRIVATE gpucap_flags)
  set_target_properties(interpose_owner_${name} PROPERTIES OUTPUT_NAME ${name}_long)
  add_dependencies(interpose_owner interpose_owner_${name})
  string(TOUPPER OWNER_${name} macro)
  target_compile_definitions(interpose_owner PRIVATE ${macro}="$<TARGET_FILE:interpose_owner_${name}>")
endforeach()
set_target_properties(interpose_owner_more PROPERTIES PREFIX "" OUTPUT_NAME interpose_owner_more SUFFIX "")
set_target_properties(interpose_owner_samurai PROPERTIES OUTPUT_NAME samurai)
