# The engine (ranges, vmm, fence, pool) over a fake driver that knows the real one's rules.
find_package(Threads REQUIRED)
add_library(engine_core OBJECT engine_fake.c engine_fake_events.c engine_disturb.c engine_model.c)
foreach(module pool/range_lists pool/range_nodes pool/ranges pool/vmm pool/capture pool/streams pool/fence pool/pool pool/heap pool/small pool/cache pool/pool_apart pool/pool_blocks
    pool/pool_chunks pool/pool_figures pool/pool_grow pool/pool_pending pool/pool_reach pool/pool_table
    pool/pool_trim pool/pool_split pool/pool_dead pool/pool_expose pool/pool_guard base/lock base/process see/events
    see/owner see/owner_maps see/stacks see/tags
    settings/log)
  target_sources(engine_core PRIVATE ${CMAKE_SOURCE_DIR}/interpose/${module}.c)
endforeach()
target_link_libraries(engine_core PUBLIC gpucap_flags gpucap_cuda_headers Threads::Threads)
target_compile_options(engine_core PRIVATE -fexceptions) # as the library: a cancelled thread ends its question
if(GPUCAP_SANITIZE)
  target_compile_options(engine_core PUBLIC -O1) # millions of steps: half the time, with the same checks
endif()
if(TARGET heap_je)
  target_link_libraries(engine_core PUBLIC heap_je)
endif()

foreach(name engine_streams engine_fence engine_strict engine_threads engine_small engine_cache engine_swarm)
  gpucap_test(${name} LIBS engine_core SOURCES ${name}.c)
endforeach()
foreach(name engine_ranges engine_pool engine_faults engine_replay engine_programs engine_dead engine_guard engine_release engine_apart engine_figures engine_moves)
  gpucap_test(${name} ONE_THREAD LIBS engine_core SOURCES ${name}.c)
endforeach()
gpucap_test(engine_family ONE_THREAD LIBS engine_core bench_programs SOURCES engine_family.c engine_price.c)
gpucap_test(engine_host LIBS engine_core -Wl,--wrap=mmap,--wrap=munmap SOURCES engine_host.c)
if(TARGET heap_je)
  gpucap_test(engine_heap LIBS heap_je Threads::Threads SOURCES engine_heap.c ${CMAKE_SOURCE_DIR}/interpose/pool/heap.c)
endif()
# The checks of lock.h are on here in every preset.
gpucap_test(engine_lock LIBS Threads::Threads SOURCES engine_lock.c ${CMAKE_SOURCE_DIR}/interpose/base/lock.c)
target_compile_definitions(engine_lock PRIVATE GPUCAP_LOCK_CHECK)
