# cpack runs this between installing the files and packing them. Debian's zsh looks for completions of packages in
# vendor-completions and not in site-functions.
if(CPACK_GENERATOR STREQUAL "DEB")
  file(GLOB_RECURSE files ${CPACK_TEMPORARY_DIRECTORY}/_gpucap)
  foreach(file ${files})
    get_filename_component(from ${file} DIRECTORY)
    string(REPLACE site-functions vendor-completions to ${from})
    file(RENAME ${from} ${to})
  endforeach()
endif()
