# cpack reads this once for each kind of package, before it makes it.
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/package_lists.cmake)
if(CPACK_GENERATOR STREQUAL "DEB")
  list(APPEND CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/package_deb.cmake)
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
