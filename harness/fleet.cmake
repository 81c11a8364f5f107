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
