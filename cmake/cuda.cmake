# The module for CUDA: a file that programs open when they run. They need nothing of it to start.

# The same in a program and its module: the border between them.
set(BRAID_CUDA_FINGERPRINT "${PROJECT_VERSION}")
file(GLOB braid_cuda_border CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/runtime/cuda/module_table.h
  ${PROJECT_SOURCE_DIR}/runtime/cuda/nccl_table.h ${PROJECT_SOURCE_DIR}/runtime/cuda/program_table.h
  ${PROJECT_SOURCE_DIR}/runtime/kernels/cuda/*.h
  ${PROJECT_SOURCE_DIR}/graph/dtype.h)
foreach(header IN LISTS braid_cuda_border)
  file(SHA256 ${header} hash)
  string(APPEND BRAID_CUDA_FINGERPRINT "${hash}")
endforeach()
set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${braid_cuda_border})
string(SHA256 braid_cuda_hash "${BRAID_CUDA_FINGERPRINT}")
string(SUBSTRING ${braid_cuda_hash} 0 12 braid_cuda_hash)
set(BRAID_CUDA_FINGERPRINT "${PROJECT_VERSION}-${braid_cuda_hash}")

set(BRAID_HAS_CUDA_MODULE OFF)
if(NOT BRAID_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "BRAID_CUDA=${BRAID_CUDA}; ON, OFF or AUTO was expected")
endif()
if(BRAID_SANITIZE AND BRAID_CUDA STREQUAL "AUTO")
  message(STATUS "CUDA: no module, since the sanitizers do not see into it")
elseif(NOT BRAID_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  set(CMAKE_CUDA_ARCHITECTURES ${BRAID_CUDA_ARCHITECTURES})
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(DEFINED ENV{CMAKE_CXX_COMPILER_LAUNCHER} AND NOT DEFINED CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER $ENV{CMAKE_CXX_COMPILER_LAUNCHER})
    endif()
    enable_language(CUDA)
    # Debian 12's CMake does not know how nvcc is told this version of the language.
    if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
    set(BRAID_HAS_CUDA_MODULE ON)
    message(STATUS "CUDA: the module is built with ${CMAKE_CUDA_COMPILER} for ${BRAID_CUDA_ARCHITECTURES}")
    # Its headers only: what runs opens the library, or does without.
    foreach(library IN ITEMS cuDNN NCCL NVRTC)
      string(TOUPPER ${library} upper)
      string(TOLOWER ${library} lower)
      find_path(BRAID_${upper}_INCLUDE ${lower}.h HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES}
        DOC "Folder with ${lower}.h")
      if(NOT BRAID_${upper}_INCLUDE)
        message(STATUS "CUDA: the module is built without ${library}, since there is no ${lower}.h here; "
          "-DBRAID_${upper}_INCLUDE=DIR says where it is")
      endif()
    endforeach()
  elseif(BRAID_CUDA STREQUAL "ON")
    message(FATAL_ERROR "BRAID_CUDA=ON and there is no nvcc; install the CUDA toolkit (13.0 was tried), "
      "say where it is by CUDACXX=/path/to/nvcc, or build with -DBRAID_CUDA=OFF")
  else()
    message(STATUS "CUDA: no module, since there is no nvcc here (BRAID_CUDA=AUTO)")
  endif()
endif()

# Called in runtime/: bin/braid_cuda.so, beside the programs that open it.
function(braid_cuda_module)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/runtime/kernels/cuda/*.cu)
  if(BRAID_CUDNN_INCLUDE)
    list(FILTER sources EXCLUDE REGEX "/no_cudnn[.]cu$")
  else()
    list(FILTER sources EXCLUDE REGEX "/cudnn_convolution[.]cu$")
  endif()
  set(nccl_source cuda/no_nccl.cu)
  if(BRAID_NCCL_INCLUDE)
    set(nccl_source cuda/nccl.cu)
  endif()
  set(nvrtc_source cuda/no_nvrtc.cu)
  if(BRAID_NVRTC_INCLUDE)
    set(nvrtc_source cuda/nvrtc.cu)
  endif()
  add_library(braid_cuda_module MODULE cuda/module.cu ${nccl_source} ${nvrtc_source} ${sources})
  set_target_properties(braid_cuda_module PROPERTIES PREFIX "" OUTPUT_NAME braid_cuda
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
    CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON CUDA_RUNTIME_LIBRARY Static
    CUDA_ARCHITECTURES "${BRAID_CUDA_ARCHITECTURES}")
  target_include_directories(braid_cuda_module PRIVATE ${PROJECT_SOURCE_DIR})
  foreach(include IN ITEMS BRAID_CUDNN_INCLUDE BRAID_NCCL_INCLUDE BRAID_NVRTC_INCLUDE)
    if(${include})
      target_include_directories(braid_cuda_module SYSTEM PRIVATE ${${include}})
    endif()
  endforeach()
  target_compile_options(braid_cuda_module PRIVATE -O3 --expt-relaxed-constexpr
    "SHELL:-include ${PROJECT_SOURCE_DIR}/runtime/kernels/cuda/cuda_on_card.h")
  target_compile_definitions(braid_cuda_module PRIVATE
    BRAID_CUDA_FINGERPRINT="${BRAID_CUDA_FINGERPRINT}")
  target_link_libraries(braid_cuda_module PRIVATE ${CMAKE_DL_LIBS})
  install(TARGETS braid_cuda_module LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()
