// A handler of SIGBUS that logs why before the process ends.

#pragma once

namespace embershard {

// From now on SIGBUS, which a read of a mapped file raises where the file has become shorter
// or its disk fails, writes one line to standard error before it ends the process as ever.
// For processes that do nothing but serve: it replaces the handler that was there.
void ExplainBusErrors();

}  // namespace embershard
