# Fleet, scenarios and plots: what is pure in them. Those that allocate nothing need no search for leaks.
set(no_leaks ENV "ASAN_OPTIONS=detect_leaks=0")
gpucap_test(harness_fleet_line LIBS fleet_core SOURCES harness_fleet_line.c ${no_leaks})
gpucap_test(harness_fleet_config LIBS fleet_core SOURCES harness_fleet_config.c)
gpucap_test(harness_fleet_report LIBS fleet_core SOURCES harness_fleet_report.c ${no_leaks})
gpucap_test(harness_scenario_parts LIBS scenario_core SOURCES harness_scenario_parts.c)
gpucap_test(harness_plot_files LIBS harness_plot SOURCES harness_plot.c ${no_leaks})
