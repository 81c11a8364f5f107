# Runs at the start of `cmake --install`: writes down which folders it will have to create, parents first, so that the
# target uninstall can remove them. GPUCAP_BUILD is the build folder.
set(root $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX})
set(folders)
foreach(folder / /bin /include /lib /lib/pkgconfig /lib/gpucap /lib/gpucap/sim /share /share/bash-completion
    /share/bash-completion/completions /share/doc /share/doc/gpucap /share/man /share/man/man1 /share/zsh
    /share/zsh/site-functions)
  if(NOT EXISTS ${root}${folder})
    string(APPEND folders "${root}${folder}\n")
  endif()
endforeach()
file(APPEND ${GPUCAP_BUILD}/install_folders.txt "${folders}")
