// What the processor can do.

#ifndef EMBERSHARD_BASE_PROCESSOR_H_
#define EMBERSHARD_BASE_PROCESSOR_H_

#include <filesystem>
#include <set>
#include <string>

namespace embershard {

// Its instruction sets and other abilities, as Linux names them: "avx2", "asimd". Empty where
// `file` has no such line.
std::set<std::string> ProcessorFlags(const std::filesystem::path& file = "/proc/cpuinfo");

}  // namespace embershard

#endif  // EMBERSHARD_BASE_PROCESSOR_H_
