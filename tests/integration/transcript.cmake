# The transcripts of tests/gpu on simgpu: native against wrapped, and simgpu against the recorded real driver. Included by
# CMakeLists.txt of this folder.
add_library(transcript_support STATIC transcript_support.c)
target_link_libraries(transcript_support PUBLIC test_support unity PRIVATE gpucap_flags)
foreach(name transcript_wrapped transcript_golden transcript_fill)
  gpucap_test(${name} ONE_THREAD LIBS transcript_support SOURCES ${name}.c)
  target_compile_definitions(${name} PRIVATE TRANSCRIPT_GOLDEN="${CMAKE_SOURCE_DIR}/tests/gpu/golden")
  add_dependencies(${name} transcript transcript_rt_shared transcript_rt_sim_static fill_dl fill_direct
    fill_rt_shared fill_rt_sim_static nvml_watch startup start_probe_shared
    gpucap_library simgpu_cuda simgpu_cudart simgpu_nvml)
endforeach()
