# The engine (ranges, vmm, fence, pool) over a fake driver that knows the real one's rules.
find_package(Threads REQUIRED)
add_library(engine_core OBJECT engine_fake.c engine_model.c)
foreach(module ranges vmm fence pool cache pool_grow pool_dead tags log)
  target_sources(engine_core PRIVATE ${CMAKE_SOURCE_DIR}/interpose/${module}.c)
endforeach()
target_include_directories(engine_core PUBLIC ${CMAKE_SOURCE_DIR}/interpose)
target_link_libraries(engine_core PUBLIC gpucap_flags gpucap_cuda_headers Threads::Threads)

foreach(name engine_ranges engine_pool engine_fence engine_faults engine_threads engine_replay)
  gpucap_test(${name} TIMEOUT 300 LIBS engine_core SOURCES ${name}.c)
endforeach()
