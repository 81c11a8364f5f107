# guard=on and fill=on under programs with faults, on simgpu. Included by CMakeLists.txt of this folder, behind
# pointers.cmake: its programs run guarded as well.
add_executable(prog_faults prog_faults.c ${PROG_CHECK})
target_link_libraries(prog_faults PRIVATE gpucap_flags gpucap_cuda_headers Threads::Threads ${CMAKE_DL_LIBS} simgpu_cuda)

gpucap_test(faults ONE_THREAD LIBS test_support SOURCES faults.c)
add_dependencies(faults prog_faults ${pointers_programs} gpucap_library simgpu_cuda simgpu_nvml)
