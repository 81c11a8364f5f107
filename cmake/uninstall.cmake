# The target uninstall: removes every file that the last `cmake --install` of each component put in place, then the
# folders that only gpucap uses. usage: cmake -DBUILD=FOLDER -P uninstall.cmake, with the same DESTDIR
# cpack writes the same lists for single components: uninstall those before you make packages.
file(GLOB manifests ${BUILD}/install_manifest*.txt)
if(NOT manifests)
  message(FATAL_ERROR "nothing to uninstall: ${BUILD} has no install_manifest*.txt")
endif()
foreach(manifest ${manifests})
  file(STRINGS ${manifest} files)
  foreach(file ${files})
    message(STATUS "Removing $ENV{DESTDIR}${file}")
    file(REMOVE "$ENV{DESTDIR}${file}")
    get_filename_component(folder "$ENV{DESTDIR}${file}" DIRECTORY)
    while(folder MATCHES "/(share/doc/gpucap|lib/gpucap|lib/gpucap/sim)$")
      # rmdir refuses a folder in which something is left.
      execute_process(COMMAND rmdir "${folder}" ERROR_QUIET)
      get_filename_component(folder "${folder}" DIRECTORY)
    endwhile()
  endforeach()
  file(REMOVE ${manifest})
endforeach()
