# The shared state of the simulated cards.
set(card_dir ${CMAKE_SOURCE_DIR}/tools/simgpu/engine)
set(card_sources ${card_dir}/sim_card.c ${card_dir}/sim_card_file.c ${card_dir}/sim_card_spec.c)
find_package(Threads REQUIRED)

gpucap_test(card_spec SOURCES card_spec.c ${card_dir}/sim_card_spec.c)
gpucap_test(card_share LIBS Threads::Threads SOURCES card_share.c ${card_sources})

gpucap_test(nvml_answers LIBS simgpu_nvml Threads::Threads SOURCES nvml_answers.c ${card_sources}
  ${CMAKE_SOURCE_DIR}/tools/simgpu/nvml/nvml_view.c)
