// A file in memory, for libraries that load a path where the bytes are at hand.

#pragma once

#include <string>
#include <string_view>

#include "base/file.h"
#include "base/status.h"

namespace embershard {

// A file without a name that holds `bytes` and cannot be changed any more (memfd, sealed). It ends
// with the last descriptor. kInternal when the system has no such file or no memory.
Result<File> MakeMemoryFile(std::string_view bytes);

// By which this process opens it, as long as `file` is open.
std::string MemoryFilePath(const File& file);

}  // namespace embershard
