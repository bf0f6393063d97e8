#include "base/bus_error.h"

#include <signal.h>
#include <unistd.h>

#include <string_view>

namespace embershard {
namespace {

constexpr std::string_view kExplanation =
    "embershard: a file of the package became shorter while it was served, or could not be read; "
    "packages are never changed in place: publish a new version beside the old one\n";

// Uses only async-signal-safe functions.
extern "C" void Explain(int signal) {
  // If even this fails, nothing more can be done.
  if (write(STDERR_FILENO, kExplanation.data(), kExplanation.size()) < 0) _exit(128 + signal);
  raise(signal);  // The default action is restored, so this ends the process.
}

}  // namespace

void ExplainBusErrors() {
  struct sigaction action = {};
  action.sa_handler = &Explain;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace embershard
