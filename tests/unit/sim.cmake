# The simulated driver, through its exported entry points.
find_package(Threads REQUIRED)

add_library(sim_test STATIC sim_test.c)
target_link_libraries(sim_test PUBLIC gpucap_flags gpucap_cuda_headers unity test_support simgpu_cuda
  Threads::Threads ${CMAKE_DL_LIBS})

foreach(test sim_alloc sim_capture sim_capture_waits sim_fault sim_fault_env sim_graph_memory sim_graph_nodes sim_green sim_ipc sim_kernel sim_life sim_pointer sim_pool
        sim_procaddr sim_stream sim_vmm)
  gpucap_test(${test} LIBS sim_test SOURCES ${test}.c)
endforeach()
# Its kernel is found with dlsym.
set_target_properties(sim_kernel PROPERTIES ENABLE_EXPORTS ON)
