# Recordings of whole programs on simgpu. Included by CMakeLists.txt of this folder.
foreach(kind shared static)
  add_library(prog_owner_${kind} SHARED prog_owner.c)
  target_link_libraries(prog_owner_${kind} PRIVATE gpucap_flags gpucap_cuda_headers)
endforeach()
target_link_libraries(prog_owner_shared PRIVATE simgpu_cudart)
target_link_libraries(prog_owner_static PRIVATE simgpu_cudart_static ${CMAKE_DL_LIBS})
target_compile_definitions(prog_owner_static PRIVATE OWNER_STATIC)
set_target_properties(prog_owner_shared PROPERTIES OUTPUT_NAME cudnn_of_prog)
set_target_properties(prog_owner_static PROPERTIES OUTPUT_NAME nccl_of_prog)
# The static runtime's functions must not take the place of the shared one's.
target_link_options(prog_owner_static PRIVATE -Wl,--exclude-libs,ALL)

add_executable(prog_recorded prog_recorded.c ${PROG_CHECK})
target_link_libraries(prog_recorded PRIVATE gpucap_flags gpucap_cuda_headers Threads::Threads ${CMAKE_DL_LIBS} prog_owner_shared
  prog_owner_static simgpu_cudart simgpu_cuda)
target_compile_options(prog_recorded PRIVATE -fno-omit-frame-pointer)

gpucap_test(recorded LIBS test_support recording_decode SOURCES recorded_programs.c)
add_dependencies(recorded prog_recorded prog_ipc prog_job gpucap_library gpucap_command simgpu_cuda simgpu_cudart simgpu_nvml)

# NVTX is a header of the toolkit's.
find_path(nvtx_include nvtx3/nvToolsExt.h PATHS ${CUDA_INCLUDE_DIR})
mark_as_advanced(nvtx_include)
if(nvtx_include)
  add_executable(prog_nvtx prog_nvtx.c ${PROG_CHECK})
  target_include_directories(prog_nvtx SYSTEM PRIVATE ${nvtx_include})
  target_link_libraries(prog_nvtx PRIVATE gpucap_flags gpucap_cuda_headers Threads::Threads ${CMAKE_DL_LIBS} simgpu_cuda)
  gpucap_test(nvtx_tags LIBS test_support recording_decode SOURCES nvtx_tags.c)
  add_dependencies(nvtx_tags prog_nvtx gpucap_library gpucap_command simgpu_cuda simgpu_nvml)
else()
  message(STATUS "nvtx3/nvToolsExt.h not found: the test nvtx_tags is left out")
endif()
