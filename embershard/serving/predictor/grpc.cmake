# Which gRPC: EMBERSHARD_GRPC chooses. docs/deployment.md says how to build one for `vendored`.
#
# Afterwards find_package(Protobuf), pkg-config and find_program find that gRPC's parts; all come
# from one place, since generated code must fit the library.

set(EMBERSHARD_GRPC system CACHE STRING "system: the distribution's; vendored: EMBERSHARD_GRPC_PREFIX")
set_property(CACHE EMBERSHARD_GRPC PROPERTY STRINGS system vendored)
set(EMBERSHARD_GRPC_PREFIX "" CACHE PATH "Where a gRPC of your own is installed, with its protobuf")

if(EMBERSHARD_GRPC STREQUAL "vendored")
  foreach(part bin/protoc bin/grpc_cpp_plugin include/grpcpp/grpcpp.h)
    if(NOT EXISTS "${EMBERSHARD_GRPC_PREFIX}/${part}")
      message(FATAL_ERROR "EMBERSHARD_GRPC=vendored: expected an installed gRPC in "
        "EMBERSHARD_GRPC_PREFIX, got '${EMBERSHARD_GRPC_PREFIX}', where ${part} is missing; "
        "docs/deployment.md says how to build one")
    endif()
  endforeach()
  list(PREPEND CMAKE_PREFIX_PATH "${EMBERSHARD_GRPC_PREFIX}")
  set(ENV{PKG_CONFIG_PATH} "${EMBERSHARD_GRPC_PREFIX}/lib/pkgconfig:$ENV{PKG_CONFIG_PATH}")
elseif(NOT EMBERSHARD_GRPC STREQUAL "system")
  message(FATAL_ERROR "EMBERSHARD_GRPC must be system or vendored, got '${EMBERSHARD_GRPC}'")
endif()
