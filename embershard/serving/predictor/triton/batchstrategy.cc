// Intentionally empty. Triton's dynamic batcher loads a library of this name next to the backend's;
// this library is linked to the backend's, which has the five functions.
