# gpucap.h under a program that asks, on simgpu. Included by CMakeLists.txt of this folder.
add_executable(prog_api prog_api.c ${PROG_CHECK})
target_link_libraries(prog_api PRIVATE gpucap_flags gpucap_cuda_headers Threads::Threads ${CMAKE_DL_LIBS} simgpu_cuda)

gpucap_test(interpose_api LIBS test_support SOURCES interpose_api.c)
add_dependencies(interpose_api prog_api gpucap_library simgpu_cuda simgpu_nvml)
