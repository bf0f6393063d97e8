// One run of a program that has just been loaded.

#ifndef EMBERSHARD_DENSE_TRIAL_H_
#define EMBERSHARD_DENSE_TRIAL_H_

#include "dense/dense_program.h"

namespace embershard {

// Runs zeros at R = 2, B = 3: an output that is missing, of a wrong shape or of a wrong
// scope shows before the first request.
Status TryOnce(DenseProgram& program, const Schema& schema);

}  // namespace embershard

#endif  // EMBERSHARD_DENSE_TRIAL_H_
