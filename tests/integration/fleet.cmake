# `fleet` with members that behave badly, and `scenarios` on tiny simulated cards.
gpucap_test(fleet_members LIBS cli_support SOURCES fleet_members.c)
add_dependencies(fleet_members fleet gpucap_command cli_quiet)
gpucap_test(scenarios_run LIBS cli_support SOURCES scenarios_run.c)
add_dependencies(scenarios_run scenarios fleet)
