# cpack runs this between installing the files and packing them. Puts the lists of what the user installed from the build
# folder back in place (package.cmake has kept them): cpack has written some of its own, and the target uninstall would
# remove what they name.
file(GLOB lists ${CPACK_GPUCAP_BUILD}/install_*.txt)
file(REMOVE ${lists})
file(GLOB lists ${CPACK_GPUCAP_BUILD}/install_kept/*.txt)
file(COPY ${lists} DESTINATION ${CPACK_GPUCAP_BUILD})
file(REMOVE_RECURSE ${CPACK_GPUCAP_BUILD}/install_kept)
