# The modules of libgpucap.so, each alone: only the sources named here are linked, so that a test can stand in for the rest.
set(interpose_dir ${CMAKE_SOURCE_DIR}/interpose)
find_package(Threads REQUIRED)
add_library(ledger_support OBJECT ledger_support.c)
target_link_libraries(ledger_support PRIVATE gpucap_flags unity)

function(interpose_unit name)
  cmake_parse_arguments(U "LEDGER" "TIMEOUT" "MODULES" ${ARGN})
  list(TRANSFORM U_MODULES PREPEND ${interpose_dir}/)
  if(U_LEDGER)
    list(APPEND U_MODULES ${LEDGER_OBJECTS})
  endif()
  gpucap_test(${name} TIMEOUT ${U_TIMEOUT} LIBS gpucap_cuda_headers Threads::Threads ${CMAKE_DL_LIBS}
    SOURCES ${name}.c ${U_MODULES})
endfunction()

interpose_unit(interpose_size MODULES settings/size.c)
interpose_unit(interpose_rules MODULES settings/rules.c settings/size.c)
interpose_unit(interpose_options MODULES settings/options.c settings/people.c settings/rules.c settings/size.c)
interpose_unit(interpose_limit MODULES account/limit.c)
interpose_unit(interpose_account LEDGER MODULES account/account.c account/limit.c base/lock.c base/process.c)
interpose_unit(interpose_account_job LEDGER MODULES account/account.c account/limit.c base/lock.c base/process.c)
target_sources(interpose_account_job PRIVATE $<TARGET_OBJECTS:ledger_support>)
interpose_unit(interpose_blocks MODULES account/blocks.c)
interpose_unit(interpose_drivers_pools MODULES account/drivers_pools.c base/lock.c base/process.c)
interpose_unit(interpose_graphs MODULES account/graphs.c account/limit.c base/lock.c base/process.c)
interpose_unit(interpose_device MODULES account/device.c base/lock.c base/process.c settings/options.c settings/people.c
  settings/rules.c settings/size.c)
interpose_unit(interpose_measure MODULES account/measure.c base/lock.c base/process.c base/thread.c)
target_link_options(interpose_measure PRIVATE -Wl,--wrap=pthread_cond_timedwait)
interpose_unit(interpose_decay MODULES base/thread.c pool/decay.c)
interpose_unit(interpose_nvml MODULES driver/nvml.c)
interpose_unit(interpose_nvml_told MODULES hook/hook_nvml.c account/limit.c settings/options.c settings/people.c settings/rules.c
  settings/size.c)
interpose_unit(interpose_elfslot MODULES driver/elfslot.c driver/elfsym.c)
target_link_options(interpose_elfslot PRIVATE -Wl,--wrap=mprotect)
foreach(kind now lazy)
  add_library(interpose_elfslot_${kind} MODULE interpose_elfslot_part.c)
  target_link_libraries(interpose_elfslot_${kind} PRIVATE gpucap_flags)
  target_link_options(interpose_elfslot_${kind} PRIVATE -Wl,-z,${kind} -Wl,-z,relro)
  add_dependencies(interpose_elfslot interpose_elfslot_${kind})
endforeach()
target_compile_definitions(interpose_elfslot PRIVATE ELFSLOT_NOW="$<TARGET_FILE:interpose_elfslot_now>"
  ELFSLOT_LAZY="$<TARGET_FILE:interpose_elfslot_lazy>")
interpose_unit(interpose_vmm MODULES pool/vmm.c route_fill.c)
interpose_unit(interpose_pools MODULES pool/pools.c base/lock.c base/process.c settings/size.c)
interpose_unit(interpose_hooks_memory MODULES hook/hook_memory.c hook/hook_array.c)
target_sources(interpose_hooks_memory PRIVATE hooks_fake.c)
interpose_unit(interpose_hooks_context MODULES hook/hook_context.c hook/hook_growth.c base/lock.c base/process.c)
interpose_unit(interpose_api_calls MODULES hook/api.c)
target_compile_definitions(interpose_api_calls PRIVATE GPUCAP_VERSION="test")
interpose_unit(interpose_hooks_graph MODULES hook/hook_graph.c account/graphs.c account/limit.c base/lock.c base/process.c)
interpose_unit(interpose_inquiry MODULES account/inquiry.c)
interpose_unit(interpose_refusal MODULES refusal.c account/limit.c settings/options.c settings/people.c settings/rules.c settings/size.c)
target_link_options(interpose_refusal PRIVATE -Wl,--wrap=clock_gettime)
interpose_unit(interpose_nvtx MODULES see/nvtx.c see/tags.c)
interpose_unit(interpose_owner MODULES see/events.c see/owner.c see/owner_maps.c see/stacks.c see/tags.c base/lock.c base/process.c)
interpose_unit(interpose_recorder MODULES see/events.c see/live.c see/owner.c see/owner_maps.c see/recorder.c see/recorder_names.c
  see/recording_write.c see/stacks.c see/tags.c base/lock.c base/process.c base/thread.c settings/log.c settings/size.c)
target_link_libraries(interpose_recorder PRIVATE recording_decode gpucap_zstd)
interpose_unit(interpose_names MODULES see/recorder_names.c)
interpose_unit(interpose_ipc_page MODULES share/ipc_page.c)
foreach(part "" _peers)
  interpose_unit(interpose_ipc${part} MODULES base/lock.c base/process.c base/thread.c share/ipc.c share/ipc_board.c share/ipc_broker.c
    share/ipc_exports.c share/ipc_page.c share/ipc_source.c share/ipc_thread.c share/ipc_wire.c)
  target_sources(interpose_ipc${part} PRIVATE ipc_fake.c)
  target_link_options(interpose_ipc${part} PRIVATE -Wl,--wrap=poll)
endforeach()
# A forked child starts the thread again.
set_property(TEST interpose_ipc APPEND PROPERTY ENVIRONMENT "TSAN_OPTIONS=halt_on_error=1 second_deadlock_stack=1 die_after_fork=0")

# The ledger, in several processes.
foreach(part "" _members _card _wait _files _death)
  interpose_unit(interpose_ledger${part} LEDGER)
  target_sources(interpose_ledger${part} PRIVATE $<TARGET_OBJECTS:ledger_support>)
endforeach()
target_link_options(interpose_ledger_death PRIVATE -Wl,-z,now) # the linker's work is not stepped through

# What blocks, pools and owners are known.
target_sources(interpose_blocks PRIVATE ${interpose_dir}/account/mappings.c)
interpose_unit(interpose_live MODULES see/live.c)
foreach(name ffi cudart same) # the path of the last is as long as the test's
  add_library(interpose_owner_${name} MODULE interpose_owner_passes.c)
  target_link_libraries(interpose_owner_${name} PRIVATE gpucap_flags)
  set_target_properties(interpose_owner_${name} PROPERTIES OUTPUT_NAME ${name}_long)
  add_dependencies(interpose_owner interpose_owner_${name})
endforeach()
target_compile_definitions(interpose_owner PRIVATE OWNER_FFI="$<TARGET_FILE:interpose_owner_ffi>"
  OWNER_CUDART="$<TARGET_FILE:interpose_owner_cudart>" OWNER_SAME="$<TARGET_FILE:interpose_owner_same>")
