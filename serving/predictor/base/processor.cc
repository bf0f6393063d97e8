#include "base/processor.h"

#include <fstream>
#include <sstream>

namespace embershard {

std::set<std::string> ProcessorFlags(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::set<std::string> flags;
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    std::string key;
    words >> key;
    if (key != "flags" && key != "Features") continue;  // x86; arm.
    for (std::string word; words >> word;) {
      if (word != ":") flags.insert(word);
    }
    break;  // The other processors are alike.
  }
  return flags;
}

}  // namespace embershard
