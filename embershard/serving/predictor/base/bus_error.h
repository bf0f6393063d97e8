#pragma once

namespace embershard {

// SIGBUS is raised by a read of a mapped file that has become shorter or whose disk fails. After
// this call it writes one line to standard error before it ends the process. Replaces any other
// handler, so only programs that serve call it.
void ExplainBusErrors();

}  // namespace embershard
