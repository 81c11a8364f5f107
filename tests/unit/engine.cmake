# The engine (ranges, vmm, fence, pool) over a fake driver that knows the real one's rules.
find_package(Threads REQUIRED)
add_library(engine_core OBJECT engine_fake.c engine_disturb.c engine_model.c)
foreach(module ranges vmm capture streams fence pool heap small cache pool_grow pool_trim pool_split pool_dead pool_expose pool_guard
    pool_share lock tags log process)
  target_sources(engine_core PRIVATE ${CMAKE_SOURCE_DIR}/interpose/${module}.c)
endforeach()
target_include_directories(engine_core PUBLIC ${CMAKE_SOURCE_DIR}/interpose)
target_link_libraries(engine_core PUBLIC gpucap_flags gpucap_cuda_headers Threads::Threads)
if(TARGET heap_je)
  target_link_libraries(engine_core PUBLIC heap_je)
endif()

foreach(name engine_ranges engine_pool engine_streams engine_fence engine_faults engine_threads engine_replay engine_programs engine_dead engine_guard engine_small engine_cache engine_swarm engine_release)
  gpucap_test(${name} TIMEOUT 300 LIBS engine_core SOURCES ${name}.c)
endforeach()
gpucap_test(engine_family TIMEOUT 300 LIBS engine_core bench_programs SOURCES engine_family.c engine_price.c)
gpucap_test(engine_host TIMEOUT 300 LIBS engine_core -Wl,--wrap=mmap SOURCES engine_host.c)
# The checks of lock.h are on here in every preset.
gpucap_test(engine_lock LIBS Threads::Threads SOURCES engine_lock.c ${CMAKE_SOURCE_DIR}/interpose/lock.c)
target_compile_definitions(engine_lock PRIVATE GPUCAP_LOCK_CHECK)
target_include_directories(engine_lock PRIVATE ${CMAKE_SOURCE_DIR}/interpose)
