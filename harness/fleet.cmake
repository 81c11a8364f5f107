# `fleet` (many trainings at once), `scenarios` (what the library buys, measured) and `ballast` (makes a large card a
# small one). None of them uses CUDA itself but ballast: they start programs and watch them.
add_library(harness_plot STATIC plot.c)
target_include_directories(harness_plot PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(harness_plot PRIVATE gpucap_flags PUBLIC m)

add_library(fleet_core STATIC fleet_line.c fleet_member.c fleet_run.c fleet_meter.c fleet_place.c fleet_config.c fleet_mps.c
  fleet_show.c fleet_report.c)
target_include_directories(fleet_core PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(fleet_core PUBLIC gpucap_cli gpucap_flags m ${CMAKE_DL_LIBS})

add_executable(fleet fleet.c)
target_link_libraries(fleet PRIVATE fleet_core)
set_target_properties(fleet PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})

# What is pure in the scenarios is in a library, for tests.
add_library(scenario_core STATIC scenario_card.c scenario_run.c scenario_search.c scenario_table.c scenario_docs.c
  scenario_work.c scenario_share.c scenario_limits.c scenario_many.c)
target_link_libraries(scenario_core PUBLIC fleet_core harness_plot PRIVATE gpucap_flags)
add_executable(scenarios scenario.c)
target_link_libraries(scenarios PRIVATE scenario_core)
set_target_properties(scenarios PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})

add_executable(ballast ballast.c)
target_link_libraries(ballast PRIVATE gpucap_flags gpucap_cuda_headers
  $<IF:$<BOOL:${GPUCAP_CUDART_SHARED}>,${GPUCAP_CUDART_SHARED},simgpu_cudart>)
target_link_options(ballast PRIVATE -Wl,--enable-new-dtags)
set_target_properties(ballast PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})

gpucap_manual_page(fleet fleet --man)
gpucap_manual_page(scenarios scenarios --man)

# They start these.
add_dependencies(fleet gpucap_command gpucap_library)
add_dependencies(scenarios train ballast gpucap_command gpucap_library simgpu_cuda simgpu_cudart simgpu_nvml)
