# Where the dependencies come from. CUDA: the toolkit's headers (never its libcuda: the stub in its stubs/
# folder links but cannot run). Unity and jemalloc: what tools/setup put into third_party/, or a path the user
# gives (-DUNITY_DIR=..., -DJEMALLOC_DIR=...). Threads and dl are part of every glibc we support.
find_path(CUDA_INCLUDE_DIR cuda.h HINTS $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda PATH_SUFFIXES include)
if(NOT CUDA_INCLUDE_DIR)
  message(FATAL_ERROR "cuda.h not found: install the CUDA Toolkit (13.0 or later) or set CUDA_HOME")
endif()
file(STRINGS ${CUDA_INCLUDE_DIR}/cuda.h gpucap_cuda_version_line REGEX "^#define CUDA_VERSION ")
string(REGEX REPLACE "[^0-9]" "" GPUCAP_CUDA_VERSION "${gpucap_cuda_version_line}")
if(GPUCAP_CUDA_VERSION LESS 13000)
  message(FATAL_ERROR "${CUDA_INCLUDE_DIR}/cuda.h is CUDA ${GPUCAP_CUDA_VERSION}; 13000 or later is needed")
endif()
get_filename_component(GPUCAP_CUDA_ROOT ${CUDA_INCLUDE_DIR} DIRECTORY)
add_library(gpucap_cuda_headers INTERFACE)
target_include_directories(gpucap_cuda_headers SYSTEM INTERFACE ${CUDA_INCLUDE_DIR})

# nvcc and the toolkit's runtime are needed by kernels/ and by GPU tests only.
find_program(GPUCAP_NVCC nvcc HINTS ${GPUCAP_CUDA_ROOT}/bin)
find_library(GPUCAP_CUDART_STATIC libcudart_static.a HINTS ${GPUCAP_CUDA_ROOT}/lib64)
find_library(GPUCAP_CUDART_SHARED libcudart.so HINTS ${GPUCAP_CUDA_ROOT}/lib64)

set(UNITY_DIR ${CMAKE_SOURCE_DIR}/third_party/unity CACHE PATH "Folder with unity.c and unity.h")
if(NOT EXISTS ${UNITY_DIR}/unity.c)
  message(FATAL_ERROR "Unity not found in ${UNITY_DIR}: run tools/setup, or give -DUNITY_DIR=DIR")
endif()
# Not instrumented: a test that counts on a sanitizer counts on our code. INT64 and DOUBLE are what byte counts
# and fractions need.
add_library(unity STATIC ${UNITY_DIR}/unity.c)
target_include_directories(unity SYSTEM PUBLIC ${UNITY_DIR})
target_compile_definitions(unity PUBLIC UNITY_SUPPORT_64 UNITY_INCLUDE_DOUBLE)
target_compile_options(unity PRIVATE -w)

set(JEMALLOC_DIR ${CMAKE_SOURCE_DIR}/third_party/${CMAKE_SYSTEM_PROCESSOR}/jemalloc CACHE PATH
    "Folder with include/jemalloc/jemalloc.h and lib/libjemalloc_pic.a")
if(EXISTS ${JEMALLOC_DIR}/lib/libjemalloc_pic.a)
  add_library(jemalloc_pic STATIC IMPORTED)
  set_target_properties(jemalloc_pic PROPERTIES
    IMPORTED_LOCATION ${JEMALLOC_DIR}/lib/libjemalloc_pic.a
    INTERFACE_INCLUDE_DIRECTORIES ${JEMALLOC_DIR}/include)
endif()

# zstd compresses recordings. Linked statically, so that programs start where it is not installed; without it they read
# and write recordings that are not compressed. Users say #if GPUCAP_HAVE_ZSTD.
find_path(GPUCAP_ZSTD_INCLUDE zstd.h)
find_library(GPUCAP_ZSTD_STATIC libzstd.a)
mark_as_advanced(GPUCAP_ZSTD_INCLUDE GPUCAP_ZSTD_STATIC)
add_library(gpucap_zstd INTERFACE)
if(GPUCAP_ZSTD_INCLUDE AND GPUCAP_ZSTD_STATIC)
  target_compile_definitions(gpucap_zstd INTERFACE GPUCAP_HAVE_ZSTD=1)
  target_include_directories(gpucap_zstd SYSTEM INTERFACE ${GPUCAP_ZSTD_INCLUDE})
  target_link_libraries(gpucap_zstd INTERFACE ${GPUCAP_ZSTD_STATIC})
else()
  target_compile_definitions(gpucap_zstd INTERFACE GPUCAP_HAVE_ZSTD=0)
  message(STATUS "zstd not found (Debian: libzstd-dev): compressed recordings cannot be read, gpucap will say so")
endif()
