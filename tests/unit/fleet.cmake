# Fleet, scenarios and plots: what is pure in them.
gpucap_test(fleet_line LIBS fleet_core SOURCES fleet_line.c)
gpucap_test(fleet_config LIBS fleet_core SOURCES fleet_config.c)
gpucap_test(scenario_parts LIBS scenario_core SOURCES scenario_parts.c)
gpucap_test(harness_plot_files LIBS harness_plot SOURCES harness_plot.c)
