# Since version 22 protobuf needs Abseil, which only its own package knows; older ones come without
# a package on Debian, and CMake's module finds them. Either way: protobuf::libprotobuf,
# protobuf::protoc, Protobuf_VERSION. Installed beside braidConfig.cmake, which includes it, too.
find_package(protobuf CONFIG QUIET)
if(protobuf_FOUND)
  set(Protobuf_VERSION ${protobuf_VERSION})
else()
  find_package(Protobuf REQUIRED)
endif()
