# The target embershard_torch: libtorch as it lies in the torch wheel of Python_EXECUTABLE.
# Also sets fbgemm_folder, where the libraries lie that dense/ loads at run time.
#
# Not find_package(Torch): a wheel built for CUDA would then ask for the CUDA toolkit, which
# linking against libtorch does not need.

# Sets <variable> to the folder of an installed Python package, without importing it.
function(embershard_python_package variable package)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c
      "import importlib.util as u; print(u.find_spec('${package}').submodule_search_locations[0])"
    OUTPUT_VARIABLE folder
    OUTPUT_STRIP_TRAILING_WHITESPACE
    ERROR_QUIET
    RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR
      "${Python_EXECUTABLE} has no ${package}; `make install` makes .venv/bin/python, which has")
  endif()
  set(${variable} ${folder} PARENT_SCOPE)
endfunction()

embershard_python_package(torch_folder torch)
embershard_python_package(fbgemm_folder fbgemm_gpu)

add_library(embershard_torch INTERFACE)
target_include_directories(embershard_torch SYSTEM INTERFACE
  ${torch_folder}/include ${torch_folder}/include/torch/csrc/api/include)
# libtorch.so defines nothing that is linked against, but FBGEMM's libraries, which are loaded at
# run time, look for one of that name in the process.
target_link_libraries(embershard_torch INTERFACE
  ${torch_folder}/lib/libtorch_cpu.so ${torch_folder}/lib/libc10.so
  -Wl,--push-state,--no-as-needed,${torch_folder}/lib/libtorch.so,--pop-state)
# A CUDA wheel's libtorch_cpu needs libraries that torch finds when it is imported.
target_link_options(embershard_torch INTERFACE -Wl,--allow-shlib-undefined)
