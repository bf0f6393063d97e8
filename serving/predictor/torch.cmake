# The target embershard_torch: libtorch as it lies in the torch wheel of Python_EXECUTABLE.
#
# Not find_package(Torch): a wheel built for CUDA would then ask for the CUDA toolkit, which
# linking against libtorch does not need.

execute_process(
  COMMAND ${Python_EXECUTABLE} -c
    "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
  OUTPUT_VARIABLE torch_folder
  OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_QUIET
  RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "${Python_EXECUTABLE} has no torch; `make install` makes a Python that has")
endif()

add_library(embershard_torch INTERFACE)
target_include_directories(embershard_torch SYSTEM INTERFACE
  ${torch_folder}/include ${torch_folder}/include/torch/csrc/api/include)
target_link_libraries(embershard_torch INTERFACE
  ${torch_folder}/lib/libtorch_cpu.so ${torch_folder}/lib/libc10.so)
# A CUDA wheel's libtorch_cpu needs libraries that torch finds when it is imported.
target_link_options(embershard_torch INTERFACE -Wl,--allow-shlib-undefined)
