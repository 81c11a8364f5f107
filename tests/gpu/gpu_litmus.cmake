# Reuse of freed memory, in miniature: see litmus/litmus.h. Included by CMakeLists.txt of this folder.
add_executable(litmus litmus/litmus.c litmus/litmus_scene.c litmus/litmus_scenarios.c transcript/tx_driver.c)
target_compile_definitions(litmus PRIVATE LITMUS_PTX="${CMAKE_CURRENT_SOURCE_DIR}/transcript/kernels.ptx")
set_source_files_properties(litmus/litmus_scene.c PROPERTIES
  OBJECT_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/transcript/kernels.ptx)
target_link_libraries(litmus PRIVATE gpucap_flags gpucap_cuda_headers Threads::Threads ${CMAKE_DL_LIBS})

# A pattern in every block, looked for before its free: see pattern.c.
add_executable(pattern pattern.c transcript/tx_driver.c)
target_compile_definitions(pattern PRIVATE PATTERN_PTX="${CMAKE_CURRENT_SOURCE_DIR}/transcript/kernels.ptx")
set_source_files_properties(pattern.c PROPERTIES
  OBJECT_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/transcript/kernels.ptx)
target_link_libraries(pattern PRIVATE gpucap_flags gpucap_cuda_headers Threads::Threads ${CMAKE_DL_LIBS})
