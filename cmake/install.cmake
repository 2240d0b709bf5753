# `cmake --install` puts the headers under include/braid, the libraries, the braid tool, and a package
# that find_package(braid) finds. Programs link braid::api and include <braid/braid.h>. What
# examples/run.sh builds is enough for it; the libraries of ONNX files and for tests are installed if
# they were built.
include(CMakePackageConfigHelpers)

set(braid_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/braid)
# At installation, when generated headers are there.
install(CODE "
  set(source \"${PROJECT_SOURCE_DIR}\")
  set(binary \"${PROJECT_BINARY_DIR}\")
  include(\"${PROJECT_SOURCE_DIR}/cmake/stage_headers.cmake\")")
install(DIRECTORY ${PROJECT_BINARY_DIR}/headers/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/braid)

install(TARGETS braid braid_bench RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS braid_onnx_run RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} OPTIONAL)
foreach(export braid braid_onnx braid_testing)
  install(EXPORT ${export}Targets NAMESPACE braid:: DESTINATION ${braid_package_dir})
endforeach()
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/braidConfig.cmake.in ${PROJECT_BINARY_DIR}/braidConfig.cmake
  INSTALL_DESTINATION ${braid_package_dir} PATH_VARS CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/braidConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(
  FILES ${PROJECT_BINARY_DIR}/braidConfig.cmake ${PROJECT_BINARY_DIR}/braidConfigVersion.cmake
    ${PROJECT_SOURCE_DIR}/cmake/find_protobuf.cmake
  DESTINATION ${braid_package_dir})
