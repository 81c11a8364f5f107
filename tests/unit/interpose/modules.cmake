# The modules of libgpucap.so, each alone: only the sources named here are linked, so that a test can stand in for the rest.
set(interpose_dir ${CMAKE_SOURCE_DIR}/interpose)
find_package(Threads REQUIRED)

function(interpose_unit name)
  cmake_parse_arguments(U "LEDGER" "TIMEOUT" "MODULES" ${ARGN})
  list(TRANSFORM U_MODULES PREPEND ${interpose_dir}/)
  if(U_LEDGER)
    list(APPEND U_MODULES ${LEDGER_SOURCES})
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
target_sources(interpose_account_job PRIVATE ledger_support.c)
interpose_unit(interpose_blocks MODULES account/blocks.c)
interpose_unit(interpose_graphs MODULES account/graphs.c account/limit.c base/lock.c base/process.c)
interpose_unit(interpose_measure MODULES account/measure.c base/thread.c)
interpose_unit(interpose_decay MODULES base/thread.c pool/decay.c)
interpose_unit(interpose_nvml MODULES driver/nvml.c)
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
interpose_unit(interpose_inquiry MODULES account/inquiry.c)
interpose_unit(interpose_owner MODULES see/events.c see/owner.c see/owner_maps.c see/stacks.c see/tags.c base/lock.c base/process.c)
interpose_unit(interpose_recorder MODULES see/events.c see/live.c see/owner.c see/owner_maps.c see/recorder.c see/recorder_names.c
  see/recording_write.c see/stacks.c see/tags.c base/lock.c base/process.c base/thread.c settings/log.c settings/size.c)
target_link_libraries(interpose_recorder PRIVATE recording_decode gpucap_zstd)
interpose_unit(interpose_ipc_page MODULES share/ipc_page.c)

# The ledger, in several processes.
foreach(part "" _members _card _wait _files _death)
  interpose_unit(interpose_ledger${part} LEDGER TIMEOUT 120)
  target_sources(interpose_ledger${part} PRIVATE ledger_support.c)
endforeach()
target_link_options(interpose_ledger_death PRIVATE -Wl,-z,now) # the linker's work is not stepped through
