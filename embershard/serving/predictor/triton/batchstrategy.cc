// Empty: Triton's dynamic batcher looks for a library of this name beside the backend's, and finds
// its five functions in that, which this one is linked to.
