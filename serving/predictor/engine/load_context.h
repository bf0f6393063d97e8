#pragma once

#include "base/background.h"
#include "base/read_control.h"

namespace embershard {

// Where and how fast one load is done. Owns nothing; both outlive the load.
struct LoadContext {
  // Reads and computes with idle scheduling priority. Null: on the calling thread.
  Background* background = nullptr;

  // Paces reads, counts progress, stops the load. Null: nobody does.
  ReadControl* control = nullptr;
};

}  // namespace embershard
