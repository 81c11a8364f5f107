# What users install. Three components:
#   gpucap   the library, the command and what goes with them: all that `cmake --install` takes without --component
#   harness  train, fleet, scenarios and ballast
#   simgpu   the simulated GPU of `gpucap run --sim`, where gpucap looks for it (tools/gpucap/place.c)
# `cpack` makes a .deb and a .tar.gz of the first two. Folders are fixed: gpucap finds its library in ../lib.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME gpucap)
install(CODE "set(GPUCAP_BUILD ${CMAKE_BINARY_DIR})\ninclude(${CMAKE_SOURCE_DIR}/cmake/install_folders.cmake)" ALL_COMPONENTS)

get_property(parts GLOBAL PROPERTY GPUCAP_PARTS)
install(TARGETS gpucap_library ${parts} LIBRARY DESTINATION lib)
install(TARGETS gpucap_command DESTINATION bin)
install(FILES interpose/gpucap.h DESTINATION include)
install(FILES ${CMAKE_BINARY_DIR}/gpucap.1 DESTINATION share/man/man1)
install(FILES ${CMAKE_BINARY_DIR}/completions/bash DESTINATION share/bash-completion/completions RENAME gpucap)
install(FILES ${CMAKE_BINARY_DIR}/completions/zsh DESTINATION share/zsh/site-functions RENAME _gpucap)
install(FILES LICENSE DESTINATION share/doc/gpucap)
install(FILES cmake/copyright DESTINATION share/doc/gpucap)
configure_file(cmake/gpucap.pc.in gpucap.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/gpucap.pc DESTINATION lib/pkgconfig)

set(harness COMPONENT harness EXCLUDE_FROM_ALL)
install(TARGETS train fleet scenarios ballast DESTINATION bin ${harness})
if(TARGET train_mpi)
  install(TARGETS train_mpi LIBRARY DESTINATION lib ${harness})
endif()
if(TARGET train_cuda)
  install(PROGRAMS ${CMAKE_BINARY_DIR}/libtrain_cuda.so DESTINATION lib ${harness} OPTIONAL)
endif()
foreach(page train fleet scenarios)
  install(FILES ${CMAKE_BINARY_DIR}/${page}.1 DESTINATION share/man/man1 ${harness})
endforeach()

install(DIRECTORY ${CMAKE_BINARY_DIR}/sim/ DESTINATION lib/gpucap/sim USE_SOURCE_PERMISSIONS COMPONENT simgpu
  EXCLUDE_FROM_ALL PATTERN "*.a" EXCLUDE)

# All that has to be built for the components gpucap and simgpu.
add_custom_target(installable)
add_dependencies(installable gpucap_library gpucap_command gpucap_man gpucap_bash_completion gpucap_zsh_completion
  simgpu_cuda simgpu_cudart simgpu_nvml simgpu_nccl)
if(TARGET simgpu_nvjpeg)
  add_dependencies(installable simgpu_nvjpeg)
endif()

add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -DBUILD=${CMAKE_BINARY_DIR}
  -P ${CMAKE_SOURCE_DIR}/cmake/uninstall.cmake VERBATIM)

# --- packages ---
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_COMPONENTS_ALL gpucap harness)
set(CPACK_PACKAGE_VENDOR "gpucap")
set(CPACK_PACKAGE_CONTACT "The gpucap authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Memory cap and defragmenting pool under unmodified CUDA programs")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_GPUCAP_BUILD ${CMAKE_BINARY_DIR})
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_SOURCE_DIR}/cmake/package.cmake)

set(archive ${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_PACKAGE_FILE_NAME gpucap-${archive})
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_ARCHIVE_GPUCAP_FILE_NAME gpucap-${archive})
set(CPACK_ARCHIVE_HARNESS_FILE_NAME gpucap-harness-${archive})

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_GPUCAP_PACKAGE_NAME gpucap)
set(CPACK_DEBIAN_HARNESS_PACKAGE_NAME gpucap-harness)
set(CPACK_COMPONENT_HARNESS_DESCRIPTION "Trainings that show what gpucap does: train, fleet, scenarios, ballast.")
# package.cmake adds the libraries that the programs need.
set(CPACK_DEBIAN_HARNESS_PACKAGE_DEPENDS "gpucap (= ${PROJECT_VERSION})")
find_program(GPUCAP_SHLIBDEPS dpkg-shlibdeps)
mark_as_advanced(GPUCAP_SHLIBDEPS)
if(GPUCAP_SHLIBDEPS)
  set(CPACK_DEBIAN_GPUCAP_PACKAGE_SHLIBDEPS ON)
else()
  set(CPACK_DEBIAN_GPUCAP_PACKAGE_DEPENDS libc6)
endif()
include(CPack)
