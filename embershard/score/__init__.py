"""Scores data sets with the server's C++ predictor in this process."""

from embershard.score.batch_scorer import BadRow, BatchScorer, Scores
from embershard.score.files import ScoredFiles, score_files

__all__ = ["BadRow", "BatchScorer", "ScoredFiles", "Scores", "score_files"]
