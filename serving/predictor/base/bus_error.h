// A word before the end where a mapped file shrinks.

#ifndef EMBERSHARD_BASE_BUS_ERROR_H_
#define EMBERSHARD_BASE_BUS_ERROR_H_

namespace embershard {

// From now on SIGBUS, which a read of a mapped file raises where the file has become shorter
// or its disk fails, writes one line to standard error before it ends the process as ever.
// For processes that do nothing but serve: it takes the signal from whoever had it.
void ExplainBusErrors();

}  // namespace embershard

#endif  // EMBERSHARD_BASE_BUS_ERROR_H_
