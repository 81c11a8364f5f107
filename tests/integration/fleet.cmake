# `fleet` with members that behave badly, `scenarios` on tiny simulated cards, and the search for a batch under a cap.
gpucap_test(fleet_members LIBS cli_support SOURCES fleet_members.c)
add_dependencies(fleet_members fleet gpucap_command cli_quiet simgpu_nvml)
gpucap_test(scenarios_run ONE_THREAD LIBS cli_support SOURCES scenarios_run.c)
add_dependencies(scenarios_run scenarios fleet)
# Whole searches take minutes under a sanitizer, where harness_memory and harness_fit search on smaller cards.
if(NOT GPUCAP_SANITIZE)
  gpucap_test(find_batch TIMEOUT 900 LIBS cli_support SOURCES find_batch.c)
  add_dependencies(find_batch train gpucap_command gpucap_library simgpu_cuda simgpu_cudart)
  set_tests_properties(find_batch PROPERTIES COST 1000) # the longest: it begins first
endif()
gpucap_test(manual_pages LIBS cli_support SOURCES manual_pages.c)
add_dependencies(manual_pages gpucap_man train_man fleet_man scenarios_man simgpu_cuda)
