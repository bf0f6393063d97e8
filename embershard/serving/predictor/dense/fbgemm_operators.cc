#include <dlfcn.h>

#include <array>
#include <mutex>
#include <string>
#include <system_error>

#include "dense/dense_program.h"

namespace embershard {
namespace {

// Each library follows those whose symbols it needs.
constexpr std::array kLibraries = {
    "fbgemm_gpu_config.so",    "fbgemm_gpu_tbe_common.so",    "fbgemm_gpu_tbe_utils.so",
    "fbgemm_gpu_tbe_cache.so", "fbgemm_gpu_tbe_inference.so", "fbgemm_gpu_py.so",
};

// Libraries are never closed, because operators stay registered until the process ends.
Status Open(const std::string& library) {
  if (dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return {};
  return Internal(std::string("FBGEMM: ") + dlerror());
}

}  // namespace

Status LoadFbgemmOperators(const std::filesystem::path& folder) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  // The libraries need libtorch.so but have no path to it. Nothing else has loaded it, because it
  // is only an empty wrapper of libtorch_cpu.so. It is found in the same folder as that library.
  if (Status status = Open("libtorch.so"); !status.ok()) return status;
  for (const char* name : kLibraries) {
    const std::filesystem::path library = folder / name;
    std::error_code error;
    if (!std::filesystem::exists(library, error)) {
      return NotFound("FBGEMM: there is no " + library.string() +
                      "; expected the folder of the installed Python package fbgemm_gpu");
    }
    if (Status status = Open(library.string()); !status.ok()) return status;
  }
  return {};
}

}  // namespace embershard
