# Graphs that allocate, under whole programs on simgpu. The program checks itself and is also run natively. Included by
# CMakeLists.txt of this folder.
add_executable(prog_graphs prog_graphs.c ${PROG_CHECK})
target_link_libraries(prog_graphs PRIVATE gpucap_flags gpucap_cuda_headers Threads::Threads ${CMAKE_DL_LIBS} simgpu_cuda)

gpucap_test(graphs_cap LIBS test_support SOURCES graphs_cap.c)
add_dependencies(graphs_cap prog_graphs gpucap_library simgpu_cuda simgpu_nvml)
