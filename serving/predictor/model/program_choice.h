// Which of a package's dense programs is run here.

#ifndef EMBERSHARD_MODEL_PROGRAM_CHOICE_H_
#define EMBERSHARD_MODEL_PROGRAM_CHOICE_H_

#include <set>
#include <string>

#include "base/status.h"
#include "package/manifest.h"

namespace embershard {

// What a compiled program must fit.
struct ProgramHost {
  std::string torch;                   // Its version.
  std::set<std::string> instructions;  // What the processor has.
};

struct ProgramChoice {
  bool compiled = false;
  DenseType type = DenseType::kFloat32;
  std::string file;
};

// The program whose target is `target`. Empty: the first compiled one that fits `host`, or
// the TorchScript one where none is compiled. kBadPackage says what does not fit, and what
// to do; kNotFound: no such target.
Result<ProgramChoice> ChooseProgram(const Manifest& manifest, const std::string& target,
                                    const ProgramHost& host);

}  // namespace embershard

#endif  // EMBERSHARD_MODEL_PROGRAM_CHOICE_H_
