# The data side of `train`. train_data: datasets and the pipeline, without CUDA. train_feed: pinned memory and copies.
add_library(train_data STATIC dataset.c data_synth.c data_idx.c data_cifar.c data_folder.c data_text.c cifar.c file.c
  listing.c image.c image_jpeg.c image_png.c shrink.c augment.c cache.c mapper.c pipeline.c pipeline_work.c)
target_include_directories(train_data PUBLIC ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/kernels)
target_link_libraries(train_data PRIVATE gpucap_flags PUBLIC train_core m)

# Always optimized, as the operations: this is what keeps a device waiting.
set_source_files_properties(shrink.c augment.c data_synth.c PROPERTIES COMPILE_OPTIONS -O3)

find_package(JPEG QUIET)
if(JPEG_FOUND)
  target_compile_definitions(train_data PRIVATE HARNESS_HAVE_JPEG)
  target_link_libraries(train_data PRIVATE JPEG::JPEG)
else()
  message(STATUS "libjpeg not found (Debian: libjpeg62-turbo-dev): train will refuse JPEG files")
endif()
find_package(PNG QUIET)
if(PNG_FOUND)
  target_compile_definitions(train_data PRIVATE HARNESS_HAVE_PNG)
  target_link_libraries(train_data PRIVATE PNG::PNG)
else()
  message(STATUS "libpng not found (Debian: libpng-dev): train will refuse PNG files")
endif()

add_library(train_feed STATIC feed.c pinned.c pinned_chunks.c)
target_link_libraries(train_feed PRIVATE gpucap_flags PUBLIC gpucap_cuda_headers train_data)

if(NOT TARGET jemalloc_pic)
  message(STATUS "jemalloc not found in ${JEMALLOC_DIR} (tools/setup gets it): pinned memory comes straight from cudaHostAlloc")
  return()
endif()
# Every public name of the archive gets a prefix, so that malloc stays the program's own; and so do the two by which it
# looks at its surroundings (pinned.c answers them).
get_target_property(jemalloc_archive jemalloc_pic IMPORTED_LOCATION)
execute_process(COMMAND ${CMAKE_NM} -g --defined-only ${jemalloc_archive} OUTPUT_VARIABLE jemalloc_names ERROR_QUIET)
string(REGEX MATCHALL "[0-9a-f]+ [A-Z] [A-Za-z_][A-Za-z0-9_]*" jemalloc_names "${jemalloc_names}")
set(jemalloc_renames "secure_getenv pinned_je_secure_getenv\nreadlink pinned_je_readlink\n")
foreach(line ${jemalloc_names})
  string(REGEX REPLACE ".* " "" name "${line}")
  if(NOT name MATCHES "^(je_|DW)")
    string(APPEND jemalloc_renames "${name} pinned_je_${name}\n")
  endif()
endforeach()
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/jemalloc_renames "${jemalloc_renames}")
set(renamed ${CMAKE_CURRENT_BINARY_DIR}/libpinned_jemalloc.a)
add_custom_command(OUTPUT ${renamed}
  COMMAND ${CMAKE_OBJCOPY} --redefine-syms=${CMAKE_CURRENT_BINARY_DIR}/jemalloc_renames ${jemalloc_archive} ${renamed}
  DEPENDS ${jemalloc_archive} ${CMAKE_CURRENT_BINARY_DIR}/jemalloc_renames
  COMMENT "Renaming jemalloc's public names" VERBATIM)
add_custom_target(pinned_jemalloc_archive DEPENDS ${renamed})
add_library(pinned_jemalloc STATIC IMPORTED)
set_target_properties(pinned_jemalloc PROPERTIES IMPORTED_LOCATION ${renamed} INTERFACE_LINK_LIBRARIES m)
add_dependencies(train_feed pinned_jemalloc_archive)
target_compile_definitions(train_feed PRIVATE HARNESS_HAVE_JEMALLOC)
target_include_directories(train_feed SYSTEM PRIVATE ${JEMALLOC_DIR}/include)
target_link_libraries(train_feed PRIVATE pinned_jemalloc ${CMAKE_DL_LIBS})
