# The modules of libgpucap.so, each alone: only the sources named here are linked, so that a test can stand in for the rest.
set(interpose_dir ${CMAKE_SOURCE_DIR}/interpose)
find_package(Threads REQUIRED)

function(interpose_unit name)
  cmake_parse_arguments(U "" "TIMEOUT" "MODULES" ${ARGN})
  list(TRANSFORM U_MODULES PREPEND ${interpose_dir}/)
  gpucap_test(${name} TIMEOUT ${U_TIMEOUT} LIBS gpucap_cuda_headers Threads::Threads ${CMAKE_DL_LIBS}
    SOURCES ${name}.c ${U_MODULES})
  target_include_directories(${name} PRIVATE ${interpose_dir})
endfunction()

interpose_unit(interpose_size MODULES size.c)
interpose_unit(interpose_rules MODULES rules.c size.c)
interpose_unit(interpose_options MODULES options.c rules.c size.c)
interpose_unit(interpose_limit MODULES limit.c)
interpose_unit(interpose_account MODULES account.c limit.c)
interpose_unit(interpose_blocks MODULES blocks.c)
interpose_unit(interpose_graphs MODULES graphs.c limit.c lock.c process.c)
interpose_unit(interpose_measure MODULES measure.c)
interpose_unit(interpose_nvml MODULES nvml.c)

interpose_unit(interpose_elfslot MODULES elfslot.c elfsym.c)
target_link_options(interpose_elfslot PRIVATE -Wl,--wrap=mprotect)
foreach(kind now lazy)
  add_library(interpose_elfslot_${kind} MODULE interpose_elfslot_part.c)
  target_link_libraries(interpose_elfslot_${kind} PRIVATE gpucap_flags)
  target_link_options(interpose_elfslot_${kind} PRIVATE -Wl,-z,${kind} -Wl,-z,relro)
  add_dependencies(interpose_elfslot interpose_elfslot_${kind})
endforeach()
target_compile_definitions(interpose_elfslot PRIVATE ELFSLOT_NOW="$<TARGET_FILE:interpose_elfslot_now>"
  ELFSLOT_LAZY="$<TARGET_FILE:interpose_elfslot_lazy>")
