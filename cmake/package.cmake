# cpack reads this once for each kind of package, before it makes it.
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/package_lists.cmake)
if(CPACK_GENERATOR STREQUAL "DEB")
  list(APPEND CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/package_deb.cmake)
  # What the harness's programs need. cpack's own way would stop at libcudart.so.13, which no package of Debian has, and
  # would make Open MPI a dependency of all, for libtrain_mpi.so.
  if(CPACK_DEBIAN_GPUCAP_PACKAGE_SHLIBDEPS)
    set(scratch ${CPACK_GPUCAP_BUILD}/shlibdeps)
    file(WRITE ${scratch}/debian/control "Source: gpucap\n\nPackage: gpucap\nArchitecture: any\n")
    execute_process(COMMAND dpkg-shlibdeps -O --ignore-missing-info -l${CPACK_GPUCAP_BUILD}/sim
      ${CPACK_GPUCAP_BUILD}/train ${CPACK_GPUCAP_BUILD}/fleet ${CPACK_GPUCAP_BUILD}/scenarios ${CPACK_GPUCAP_BUILD}/ballast
      WORKING_DIRECTORY ${scratch} OUTPUT_VARIABLE needs ERROR_QUIET)
    file(REMOVE_RECURSE ${scratch})
    if(needs MATCHES "shlibs:Depends=([^\n]*)")
      string(APPEND CPACK_DEBIAN_HARNESS_PACKAGE_DEPENDS ", ${CMAKE_MATCH_1}")
    endif()
  endif()
else()
  # An archive unpacks into one folder, the same one for all components.
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
endif()
# For package_lists.cmake. Where the folder is there, an earlier cpack was interrupted, and the right lists are in it.
if(NOT EXISTS ${CPACK_GPUCAP_BUILD}/install_kept)
  file(GLOB lists ${CPACK_GPUCAP_BUILD}/install_*.txt)
  file(MAKE_DIRECTORY ${CPACK_GPUCAP_BUILD}/install_kept)
  file(COPY ${lists} DESTINATION ${CPACK_GPUCAP_BUILD}/install_kept)
endif()
