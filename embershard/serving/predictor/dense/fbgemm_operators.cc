#include <dlfcn.h>

#include <array>
#include <mutex>
#include <string>
#include <system_error>

#include "dense/dense_program.h"

namespace embershard {
namespace {

// Each needs symbols of those before it.
constexpr std::array kLibraries = {
    "fbgemm_gpu_config.so",    "fbgemm_gpu_tbe_common.so",    "fbgemm_gpu_tbe_utils.so",
    "fbgemm_gpu_tbe_cache.so", "fbgemm_gpu_tbe_inference.so", "fbgemm_gpu_py.so",
};

// Never closed: operators stay registered as long as the process lives.
Status Open(const std::string& library) {
  if (dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return {};
  return Internal(std::string("FBGEMM: ") + dlerror());
}

}  // namespace

Status LoadFbgemmOperators(const std::filesystem::path& folder) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  // They name libtorch.so without saying where it lies. Nothing links to it (it is an
  // empty shell around libtorch_cpu.so); it is found where libtorch_cpu.so was.
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
